//! The reasons for which a job waits and goes on waiting, whatever becomes free: somebody has to change something, and what
//! that is. Pure; decides nothing.

const ASK: &str =
    "correct what the deployment asks Slurm for: `partition`, `gres`, `time_limit` or `options`";
const WHO: &str = "correct the deployment's `account` or `qos`, or what Slurm allows them";
const UP: &str = "bring its partition up, or name another one in the deployment";
const RELEASE: &str =
    "see with `scontrol show job` what holds its job, then let it go with `scontrol release`";

/// Each with what to do about it.
const HELD: [(&str, &str); 22] = [
    ("AccountNotAllowed", WHO),
    ("AssociationTimeLimit", ASK),
    ("BadConstraints", ASK),
    ("DependencyNeverSatisfied", ASK),
    ("InactiveLimit", RELEASE),
    ("InvalidAccount", WHO),
    ("InvalidQOS", WHO),
    ("JobHeldAdmin", RELEASE),
    ("JobHeldUser", RELEASE),
    ("JobLaunchFailure", RELEASE),
    ("NonZeroExitCode", RELEASE),
    ("PartitionDown", UP),
    ("PartitionInactive", UP),
    ("PartitionNodeLimit", ASK),
    ("PartitionTimeLimit", ASK),
    ("QOSMinGRES", ASK),
    ("QOSNotAllowed", WHO),
    ("QOSTimeLimit", ASK),
    ("QOSUsageThreshold", WHO),
    ("ReservationDeleted", ASK),
    ("SystemFailure", RELEASE),
    ("TimeLimit", ASK),
];

/// What to do about a job that waits for `reason`, as Slurm words it; `None` where it may start by itself.
pub(super) fn advice(reason: &str) -> Option<&'static str> {
    let known = HELD.iter().find(|(word, _)| *word == reason).map(|(_, advice)| *advice);
    known.or_else(|| reason.contains("held").then_some(RELEASE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c2_what_never_starts_by_itself_has_an_advice_and_what_may_has_none() {
        for (reason, expected) in [
            ("BadConstraints", ASK),
            ("InvalidQOS", WHO),
            ("PartitionDown", UP),
            ("JobHeldUser", RELEASE),
            ("launch failed requeued held", RELEASE),
        ] {
            assert_eq!(advice(reason), Some(expected), "{reason}");
        }
        for reason in ["Resources", "Priority", "ReqNodeNotAvail", "QOSMaxJobsPerUserLimit"] {
            assert_eq!(advice(reason), None, "{reason}");
        }
    }
}
