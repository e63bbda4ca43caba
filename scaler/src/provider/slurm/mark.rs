//! What the comment of a job says: whose it is, which replica it runs, and, once that is proven, its port.
//!
//! A comment is text that anybody may write on a job of his own, so who reads one must also look at the job's user.

use std::fmt;

use tidegate_shared::id::{DeploymentName, ReplicaId};

/// The first word of the comment of every job of Tidegate.
const WORD: &str = "tidegate";

/// Whose job it is and what it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// The gateway: the random text that its state directory keeps.
    pub(super) owner: String,
    /// The deployment.
    pub(super) deployment: DeploymentName,
    /// The replica.
    pub(super) id: ReplicaId,
    /// Which offer it was started on.
    pub(super) offer: String,
    /// Which recipe it runs; see `SlurmSpec::fingerprint`.
    pub(super) recipe: String,
}

/// Where the engine of a job listens, as its script has proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Proof {
    /// In which run of the job: a job that Slurm starts again counts its runs from 0.
    pub(super) run: u32,
    /// The port on the job's first node.
    pub(super) port: u16,
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { owner, deployment, id, offer, recipe } = self;
        write!(f, "{WORD} owner={owner} deployment={deployment} replica={id} offer={offer} recipe={recipe}")
    }
}

impl Mark {
    /// The name of the job.
    pub(super) fn job_name(&self) -> String {
        format!("{WORD}:{}-{}", self.deployment, self.id)
    }
}

/// What a comment says; `None` where it is not one of Tidegate's.
pub(super) fn read(comment: &str) -> Option<(Mark, Option<Proof>)> {
    let mut words = comment.split_ascii_whitespace();
    if words.next() != Some(WORD) {
        return None;
    }
    let pairs: Vec<(&str, &str)> = words.map(|word| word.split_once('=')).collect::<Option<_>>()?;
    let get = |key: &str| pairs.iter().find(|(name, _)| *name == key).map(|(_, value)| *value);
    let mark = Mark {
        owner: get("owner")?.to_owned(),
        deployment: DeploymentName::new(get("deployment")?),
        id: ReplicaId(get("replica")?.parse().ok()?),
        offer: get("offer")?.to_owned(),
        recipe: get("recipe")?.to_owned(),
    };
    let proof = || Some(Proof { run: get("run")?.parse().ok()?, port: get("port")?.parse().ok()? });
    Some((mark, proof()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_is_read_as_it_was_written() {
        let mark = Mark {
            owner: "7a".to_owned(),
            deployment: DeploymentName::new("org/Qwen2.5:7b"),
            id: ReplicaId(12),
            offer: "a100".to_owned(),
            recipe: "c0ffee".to_owned(),
        };
        let text = mark.to_string();
        assert_eq!(read(&text), Some((mark.clone(), None)));
        let proof = Proof { run: 1, port: 20017 };
        assert_eq!(read(&format!("{text} run=1 port=20017")), Some((mark.clone(), Some(proof))));
        assert_eq!(read(&format!("{text} run=1 port=70000")), Some((mark, None)), "no such port");
    }

    #[test]
    fn what_others_write_is_nothing() {
        for text in [
            "",
            "my job",
            "tidegate",
            "tidegate owner=a",
            "tidegate owner=a deployment=b replica=x offer=o recipe=r",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
