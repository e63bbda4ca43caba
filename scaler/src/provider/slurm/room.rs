//! Counts how many more replicas of an offer would find their generic resources free now.
//!
//! Pure. Knows nothing of jobs that wait before ours, of limits on users, or of CPUs and memory, so a number is a hint
//! and no promise; unknown where the offer asks for nothing that can be counted.

use std::collections::BTreeMap;

use super::reply::Node;
use super::spec::SlurmOffer;

/// States in which a node takes no job.
const CLOSED: [&str; 14] = [
    "DOWN",
    "DRAIN",
    "DRAINED",
    "DRAINING",
    "ERROR",
    "FAIL",
    "FAILING",
    "FUTURE",
    "MAINTENANCE",
    "MAINT",
    "NOT_RESPONDING",
    "NO_RESPOND",
    "UNKNOWN",
    "RESERVED",
];

/// How many replicas of `offer` the free resources of `nodes` would hold.
pub(super) fn free(offer: &SlurmOffer, nodes: &[Node]) -> Option<u32> {
    let wanted: Vec<Amount> = amounts(offer.gres.as_deref()?).collect();
    if wanted.is_empty() || wanted.iter().any(|amount| amount.count == 0) {
        return None;
    }
    let here = |node: &&Node| match &offer.partition {
        Some(wanted) => wanted.split(',').any(|one| node.partitions.iter().any(|partition| partition == one)),
        None => true,
    };
    Some(nodes.iter().filter(here).filter(|node| open(node)).map(|node| fits(&wanted, node)).sum())
}

/// What of the nodes is free for jobs that Slurm has not looked at, one after another: each takes what the next ones do not
/// find.
#[derive(Clone, Debug, Default)]
pub(super) struct Room {
    free: BTreeMap<String, u32>,
}

impl Room {
    /// Of nodes that were seen before the jobs were: one that has started since takes no room from itself.
    pub(super) fn of(offers: &[SlurmOffer], nodes: &[Node]) -> Self {
        let count = |offer: &SlurmOffer| Some((offer.name.clone(), free(offer, nodes)?));
        Self { free: offers.iter().filter_map(count).collect() }
    }

    /// How many replicas of `offer` would find some; `None` where nobody knows.
    pub(super) fn left(&self, offer: &str) -> Option<u32> {
        self.free.get(offer).copied()
    }

    /// Whether a job on `offer` finds none; `false` where nobody knows.
    pub(super) fn is_full(&mut self, offer: &str) -> bool {
        let Some(free) = self.free.get_mut(offer) else { return false };
        let left = free.checked_sub(1);
        *free = left.unwrap_or_default();
        left.is_none()
    }
}

fn open(node: &Node) -> bool {
    let mut words = node.state.iter().chain(&node.state_flags);
    !words.any(|word| CLOSED.contains(&word.to_ascii_uppercase().trim_end_matches('*')))
}

fn fits(wanted: &[Amount], node: &Node) -> u32 {
    let each = wanted.iter().map(|amount| {
        let of = |text: &str| amounts(text).filter(|one| one.is(amount)).map(|one| one.count).sum::<u32>();
        of(&node.gres).saturating_sub(of(&node.gres_used)) / amount.count
    });
    each.min().unwrap_or_default()
}

/// So much of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Amount {
    name: String,
    kind: Option<String>,
    count: u32,
}

impl Amount {
    /// Whether it can serve who asks for `wanted`: any kind will do where none is named.
    fn is(&self, wanted: &Self) -> bool {
        self.name == wanted.name && (wanted.kind.is_none() || self.kind == wanted.kind)
    }
}

/// `gpu:a100:4(S:0-1),shard:8` in parts.
fn amounts(text: &str) -> impl Iterator<Item = Amount> {
    let mut depth = 0_u32;
    let parts = text.split(move |letter: char| {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ',' && depth == 0
    });
    parts.filter_map(|part| {
        let part = part.split('(').next()?.trim().trim_start_matches("gres/").trim_start_matches("gres:");
        let words: Vec<&str> = part.split([':', '=']).collect();
        let amount = |name: &str, kind: Option<&str>, count| Amount {
            name: name.to_owned(),
            kind: kind.map(str::to_owned),
            count,
        };
        match words[..] {
            ["" | "N/A"] | [] => None,
            [name] => Some(amount(name, None, 1)),
            [name, last] => Some(match last.parse() {
                Ok(count) => amount(name, None, count),
                Err(_) => amount(name, Some(last), 1),
            }),
            [name, kind, count, ..] => Some(amount(name, Some(kind), count.parse().ok()?)),
        }
    })
}

#[cfg(test)]
mod tests {
    use tidegate_shared::offer::Price;
    use tidegate_shared::replica::Capacity;

    use super::*;

    fn node(partition: &str, state: &str, gres: &str, used: &str) -> Node {
        let one = |text: &str| vec![text.to_owned()];
        let (gres, gres_used) = (gres.to_owned(), used.to_owned());
        Node { state: one(state), gres, gres_used, partitions: one(partition), ..Node::default() }
    }

    fn offer(partition: Option<&str>, gres: Option<&str>) -> SlurmOffer {
        let (partition, gres) = (partition.map(str::to_owned), gres.map(str::to_owned));
        SlurmOffer {
            name: "o".to_owned(),
            partition,
            gres,
            capacity: Capacity::ONE,
            price: Price::FREE,
            memory: None,
            cached: false,
        }
    }

    #[test]
    fn m1_free_is_what_the_open_nodes_of_the_partition_have_left() {
        let nodes = [
            node("a", "mixed", "gpu:a100:4(S:0-1)", "gpu:a100:1(IDX:0)"),
            node("a", "MIXED", "gpu:h100:8(S:0,1),shard:16", "gpu:h100:3(IDX:0-2),shard:0"),
            node("a", "drained", "gpu:a100:4", "gpu:a100:0"),
            node("b", "idle", "gpu:2", "gpu:0"),
        ];
        for (partition, gres, expected) in [
            (Some("a"), Some("gpu:a100:1"), Some(3)),
            (Some("a"), Some("gpu:a100:2"), Some(1)),
            (Some("a"), Some("gpu:2"), Some(1 + 2)),
            (Some("a,b"), Some("gres/gpu:1"), Some(3 + 5 + 2)),
            (None, Some("gpu"), Some(3 + 5 + 2)),
            (None, Some("gpu:h100:1,shard:8"), Some(2)),
            (None, Some("tpu:1"), Some(0)),
            (None, Some("gpu:0"), None),
            (None, None, None),
        ] {
            assert_eq!(free(&offer(partition, gres), &nodes), expected, "{partition:?} {gres:?}");
        }
        assert_eq!(free(&offer(None, Some("gpu:1")), &[node("a", "idle", "", "")]), Some(0));
    }

    #[test]
    fn c2_a_new_job_is_told_to_find_no_room_where_those_before_it_take_the_last() {
        let (plain, by_gpu) =
            (SlurmOffer { name: "p".to_owned(), ..offer(None, None) }, offer(None, Some("gpu:1")));
        let room = |used| Room::of(&[plain.clone(), by_gpu.clone()], &[node("a", "mixed", "gpu:2", used)]);
        let told = |mut room: Room| [0; 3].map(|_| room.is_full("o"));
        assert_eq!(told(room("gpu:0")), [false, false, true]);
        assert_eq!(told(room("gpu:1")), [false, true, true]);
        assert_eq!(told(room("gpu:2")), [true; 3]);
        assert!(!room("gpu:2").is_full("p"), "it asks for nothing that can be counted");
        assert!(!room("gpu:2").is_full("of a configuration before"));
    }
}
