//! Says what a job means for its replica: waits for room, is held, runs, listens, goes, is over.
//!
//! Pure: one job as Slurm tells it in, one verdict out. Never decides what is done about it.

use std::time::Duration;

use super::held;
use super::mark::{self, Proof};
use super::reply::{Exit, Job};

/// How long Slurm may take to look at a job: its scheduler puts off new ones by 3 s, unless set otherwise. What still
/// waits then waits for room.
pub(super) const LOOKED: Duration = Duration::from_secs(5);

/// What a job is to its replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// Slurm has taken it, and may have to look at it yet: until then it says nothing, or that others come first.
    New(String),
    /// It waits for room in the cluster, which may come.
    Queued(String),
    /// It waits for something that waiting does not bring.
    Held {
        /// What for.
        why: String,
        /// What an operator can do about it.
        advice: &'static str,
    },
    /// It has its node; its engine does not listen yet.
    Starting(String),
    /// Its engine listens.
    Listens {
        /// The node.
        node: String,
        /// The port.
        port: u16,
    },
    /// It has ended, or was ended; its processes or its epilog are not done yet.
    Ending,
    /// Nothing of it runs any more, or what would run is another engine.
    Over(String),
}

impl Seen {
    /// The same of a job that was submitted `age` ago; `full` where no node has room for it, so that it waits for room
    /// whatever Slurm says of it yet.
    pub(super) fn at_age(self, age: Duration, full: bool) -> Self {
        match self {
            Self::New(why) if full || age >= LOOKED => Self::Queued(format!("no capacity: {why}")),
            other => other,
        }
    }

    /// Whether it has a node, and so costs; `None`: as before.
    pub(super) fn costs(&self) -> Option<bool> {
        match self {
            Self::New(_) | Self::Queued(_) | Self::Held { .. } | Self::Over(_) => Some(false),
            Self::Starting(_) | Self::Listens { .. } => Some(true),
            Self::Ending => None,
        }
    }
}

/// States in which nothing of a job is left, with what they mean to people.
const OVER: [(&str, &str); 11] = [
    ("COMPLETED", "ended by itself"),
    ("CANCELLED", "was cancelled"),
    ("FAILED", "failed"),
    ("TIMEOUT", "ran into its time limit"),
    ("NODE_FAIL", "was lost with its node"),
    ("PREEMPTED", "was preempted"),
    ("BOOT_FAIL", "could not start: its node did not boot"),
    ("DEADLINE", "ran into its deadline"),
    ("OUT_OF_MEMORY", "ran out of memory"),
    ("REVOKED", "was revoked"),
    ("LAUNCH_FAILED", "could not be launched"),
];

/// What `job` means to its replica, which knows it from its run number `first` on.
pub(super) fn look(job: &Job, first: u32) -> Seen {
    let run = job.restart_cnt.unwrap_or_default();
    let has = |word: &str| job.job_state.iter().any(|state| state == word);
    let over = OVER.iter().find(|(word, _)| has(word));
    if run > u64::from(first) || has("REQUEUED") {
        let why = if job.state_reason.is_empty() { "no reason given" } else { &job.state_reason };
        return Seen::Over(format!("Slurm put its job back into the queue ({why})"));
    }
    if has("COMPLETING") || has("STAGE_OUT") {
        return Seen::Ending;
    }
    if let Some((word, meaning)) = over {
        return Seen::Over(format!("its job {meaning} ({word}{})", details(job)));
    }
    if has("PENDING") || has("SPECIAL_EXIT") || has("RESV_DEL_HOLD") || has("REQUEUE_HOLD") {
        return waits(job);
    }
    if has("CONFIGURING") || has("POWER_UP_NODE") {
        return Seen::Starting(format!("Slurm prepares {}", node(job)));
    }
    match mark::read(&job.comment).and_then(|(_, proof)| proof) {
        Some(Proof { run: proven, port }) if u64::from(proven) == run && !job.batch_host.is_empty() => {
            Seen::Listens { node: job.batch_host.clone(), port }
        }
        _ => Seen::Starting(format!("runs on {}; the engine does not listen yet", node(job))),
    }
}

fn node(job: &Job) -> &str {
    if job.batch_host.is_empty() { "its node" } else { &job.batch_host }
}

fn waits(job: &Job) -> Seen {
    let reason = job.state_reason.as_str();
    match reason {
        "" | "None" => Seen::New("Slurm has not looked at its job yet".to_owned()),
        "Priority" => Seen::New("Slurm says Priority".to_owned()),
        _ => match held::advice(reason) {
            Some(advice) => Seen::Held { why: format!("Slurm does not start its job: {reason}"), advice },
            None => Seen::Queued(format!("no capacity: Slurm says {reason}")),
        },
    }
}

fn details(job: &Job) -> String {
    let Exit { code, signal } = job.exit_code;
    let exit = match (code, signal) {
        (0, 0) => String::new(),
        (code, 0) => format!(", exit code {code}"),
        (_, signal) => format!(", signal {signal}"),
    };
    // These say no more than the state.
    let known = ["", "None", "NonZeroExitCode", "TimeLimit"];
    let reason = Some(job.state_reason.as_str()).filter(|reason| !known.contains(reason));
    exit + &reason.map(|reason| format!(", {reason}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMENT: &str = "tidegate owner=a deployment=chat replica=1 offer=gpu recipe=r run=1 port=20007";

    fn job(states: &[&str], reason: &str) -> Job {
        let job_state = states.iter().map(|state| (*state).to_owned()).collect();
        Job { job_state, state_reason: reason.to_owned(), batch_host: "n1".to_owned(), ..Job::default() }
    }

    fn run(restarts: u64, comment: &str) -> Job {
        let comment = comment.to_owned();
        Job { restart_cnt: Some(restarts), comment, ..job(&["RUNNING"], "None") }
    }

    #[test]
    fn c2_waiting_for_room_differs_from_waiting_for_nothing() {
        for reason in ["Resources", "QOSMaxJobsPerUserLimit", "ReqNodeNotAvail", "AssocGrpGRES"] {
            let text = format!("no capacity: Slurm says {reason}");
            assert_eq!(look(&job(&["PENDING"], reason), 0), Seen::Queued(text));
        }
        for reason in ["PartitionNodeLimit", "JobHeldUser", "InvalidQOS", "launch failed requeued held"] {
            let text = format!("Slurm does not start its job: {reason}");
            let seen = look(&job(&["PENDING"], reason), 0);
            assert!(matches!(&seen, Seen::Held { why, .. } if *why == text), "{seen:?}");
        }
    }

    #[test]
    fn c2_a_job_that_slurm_may_not_have_looked_at_is_on_its_way_for_some_seconds() {
        for reason in ["", "None", "Priority"] {
            let new = look(&job(&["PENDING"], reason), 0);
            assert!(matches!(new, Seen::New(_)), "{new:?}");
            assert_eq!(new.clone().at_age(Duration::from_secs(4), false), new);
            for (age, full) in [(LOOKED, false), (Duration::ZERO, true)] {
                let waits = new.clone().at_age(age, full);
                assert!(
                    matches!(&waits, Seen::Queued(why) if why.starts_with("no capacity: Slurm ")),
                    "{waits:?}"
                );
            }
        }
        let full = look(&job(&["PENDING"], "Resources"), 0);
        assert_eq!(full.clone().at_age(Duration::ZERO, false), full);
        assert_eq!(
            full,
            Seen::Queued("no capacity: Slurm says Resources".to_owned()),
            "from the first look on"
        );
    }

    #[test]
    fn a_port_counts_for_the_run_that_proved_it() {
        let listens = Seen::Listens { node: "n1".to_owned(), port: 20_007 };
        assert_eq!(look(&run(1, COMMENT), 1), listens);
        let text = "runs on n1; the engine does not listen yet".to_owned();
        assert_eq!(look(&run(2, COMMENT), 2), Seen::Starting(text.clone()), "of an earlier run");
        assert_eq!(look(&run(1, "something else"), 1), Seen::Starting(text));
        let over = look(&run(2, COMMENT), 1);
        assert_eq!(over, Seen::Over("Slurm put its job back into the queue (None)".to_owned()));
    }

    #[test]
    fn an_end_is_told_with_its_cause() {
        let told = |job: &Job| match look(job, 0) {
            Seen::Over(how) => how,
            other => panic!("{other:?}"),
        };
        let failed = Job { exit_code: Exit { code: 3, signal: 0 }, ..job(&["FAILED"], "NonZeroExitCode") };
        assert_eq!(told(&failed), "its job failed (FAILED, exit code 3)");
        assert_eq!(told(&job(&["TIMEOUT"], "TimeLimit")), "its job ran into its time limit (TIMEOUT)");
        assert_eq!(
            told(&job(&["NODE_FAIL"], "NodeDown")),
            "its job was lost with its node (NODE_FAIL, NodeDown)"
        );
        let killed = Job { exit_code: Exit { code: 0, signal: 9 }, ..job(&["OUT_OF_MEMORY"], "OutOfMemory") };
        assert_eq!(told(&killed), "its job ran out of memory (OUT_OF_MEMORY, signal 9, OutOfMemory)");
        for (state, word) in [("PREEMPTED", "preempted"), ("CANCELLED", "cancelled"), ("BOOT_FAIL", "boot")] {
            assert!(told(&job(&[state], "None")).contains(word));
        }
        assert_eq!(look(&job(&["COMPLETING"], "None"), 0), Seen::Ending);
        assert_eq!(
            look(&job(&["CANCELLED", "COMPLETING"], "None"), 0),
            Seen::Ending,
            "newer versions tell both"
        );
        assert!(matches!(look(&job(&["RUNNING", "CONFIGURING"], "None"), 0), Seen::Starting(_)));
    }
}
