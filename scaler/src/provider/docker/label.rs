//! What a container says of itself: labels that make it known again, by this gateway and by no other.
//!
//! A container whose labels do not make sense is nobody's, and is left alone.

use std::collections::HashMap;

use tidegate_shared::id::{DeploymentName, ReplicaId};
use tidegate_shared::replica::Capacity;

/// Who runs it: the nonce of a state directory.
pub(super) const OWNER: &str = "tidegate.owner";
/// Of which deployment it is a replica.
pub(super) const DEPLOYMENT: &str = "tidegate.deployment";
/// Which replica it is.
const REPLICA: &str = "tidegate.replica";
/// By which recipe it was made.
const RECIPE: &str = "tidegate.recipe";
/// Its size.
const CAPACITY: &str = "tidegate.capacity";
/// The port on which its engine listens, in its own network.
const PORT: &str = "tidegate.port";
/// The GPUs that are its own, separated by commas; absent where none are.
pub(super) const GPUS: &str = "tidegate.gpus";

/// What the labels of one container tell, its owner and deployment aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tag {
    pub(super) replica: ReplicaId,
    pub(super) recipe: String,
    pub(super) capacity: Capacity,
    pub(super) port: u16,
    pub(super) gpus: Vec<String>,
}

impl Tag {
    /// The labels of a container of `deployment`.
    pub(super) fn labels(&self, owner: &str, deployment: &DeploymentName) -> HashMap<String, String> {
        let gpus = (!self.gpus.is_empty()).then(|| (GPUS, self.gpus.join(",")));
        let labels = [
            (OWNER, owner.to_owned()),
            (DEPLOYMENT, deployment.as_str().to_owned()),
            (REPLICA, self.replica.to_string()),
            (RECIPE, self.recipe.clone()),
            (CAPACITY, self.capacity.units().to_string()),
            (PORT, self.port.to_string()),
        ];
        labels.into_iter().chain(gpus).map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// What `labels` tell; `None` where one that must be there is not, or makes no sense.
    pub(super) fn read(labels: &HashMap<String, String>) -> Option<Self> {
        let text = |name: &str| labels.get(name).map(String::as_str);
        Some(Self {
            replica: ReplicaId(text(REPLICA)?.parse().ok().filter(|id| *id > 0)?),
            recipe: text(RECIPE)?.to_owned(),
            capacity: Capacity::new(text(CAPACITY)?.parse().ok().filter(|units| *units > 0)?),
            port: text(PORT)?.parse().ok()?,
            gpus: gpus(labels),
        })
    }
}

/// The GPUs that a container has for itself.
pub(super) fn gpus(labels: &HashMap<String, String>) -> Vec<String> {
    let text = labels.get(GPUS).map_or("", String::as_str);
    text.split(',').filter(|id| !id.is_empty()).map(str::to_owned).collect()
}

/// The first `each` of `ids` that are not `taken`. The error is for people.
pub(super) fn choose_gpus(
    ids: &[String],
    each: u32,
    taken: &[(String, String)],
) -> Result<Vec<String>, String> {
    let each = usize::try_from(each).unwrap_or(usize::MAX);
    let is_free = |id: &&String| taken.iter().all(|(gpu, _)| gpu != *id);
    let free: Vec<String> = ids.iter().filter(is_free).take(each).cloned().collect();
    if free.len() == each {
        return Ok(free);
    }
    let holders: Vec<String> = taken.iter().map(|(gpu, holder)| format!("{gpu} by {holder}")).collect();
    Err(format!(
        "needs {each} of the GPUs {}, and {} of them are free; taken: {}",
        ids.join(", "),
        free.len(),
        holders.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(gpus: &[&str]) -> Tag {
        Tag {
            replica: ReplicaId(3),
            recipe: "r".to_owned(),
            capacity: Capacity::new(2),
            port: 8000,
            gpus: gpus.iter().map(|id| (*id).to_owned()).collect(),
        }
    }

    #[test]
    fn c005_labels_say_what_they_were_made_of_or_nothing() {
        for gpus in [&[][..], &["0", "GPU-1f"][..]] {
            let labels = tag(gpus).labels("owner", &DeploymentName::new("org/chat"));
            assert_eq!(Tag::read(&labels), Some(tag(gpus)));
            for name in [REPLICA, RECIPE, CAPACITY, PORT] {
                let mut torn = labels.clone();
                torn.remove(name);
                assert_eq!(Tag::read(&torn), None, "{name}");
            }
            for (name, value) in [(REPLICA, "0"), (REPLICA, "x"), (CAPACITY, "0"), (PORT, "70000")] {
                let mut torn = labels.clone();
                torn.insert(name.to_owned(), value.to_owned());
                assert_eq!(Tag::read(&torn), None, "{name}={value}");
            }
        }
    }

    #[test]
    fn a_gpu_is_given_once() {
        let ids = ["0", "1", "2"].map(str::to_owned);
        let taken = |gpus: &[&str]| -> Vec<(String, String)> {
            gpus.iter().map(|gpu| ((*gpu).to_owned(), "chat-1".to_owned())).collect()
        };
        assert_eq!(choose_gpus(&ids, 1, &taken(&["0"])), Ok(vec!["1".to_owned()]));
        assert_eq!(choose_gpus(&ids, 2, &taken(&["1", "7"])), Ok(vec!["0".to_owned(), "2".to_owned()]));
        let error = choose_gpus(&ids, 2, &taken(&["0", "2"])).unwrap_err();
        assert_eq!(
            error,
            "needs 2 of the GPUs 0, 1, 2, and 1 of them are free; taken: 0 by chat-1, 2 by chat-1"
        );
    }
}
