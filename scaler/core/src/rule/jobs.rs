//! The jobs rule, for images and videos: so many jobs, running or queued, for each replica. A job runs for minutes, and
//! the engine's memory says nothing of it. It never looks at tokens, prices or the past.

use super::Mean;

/// Replicas that the mean number of jobs asks for, `target` jobs each: `ceil(jobs / target)`.
pub fn need(jobs: Mean, target: u32) -> u32 {
    let each = u128::from(target.max(1)) * u128::from(jobs.count.max(1));
    u32::try_from(jobs.sum.div_ceil(each)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{RuleChoice, Task};

    #[test]
    fn b_jobs_image_four_and_video_two_per_replica() {
        let table = [
            (Task::Image, [(4, 1), (5, 2), (8, 2), (9, 3)]),
            (Task::Video, [(2, 1), (3, 2), (4, 2), (5, 3)]),
        ];
        for (task, cases) in table {
            let target = task.target_concurrency(RuleChoice::Auto);
            for (jobs, replicas) in cases {
                assert_eq!(need(Mean { sum: jobs, count: 1 }, target), replicas, "{task:?} {jobs}");
                assert_eq!(need(Mean { sum: jobs * 30, count: 30 }, target), replicas, "{task:?} {jobs}");
            }
        }
        assert_eq!(need(Mean { sum: 0, count: 1 }, 4), 0);
        assert_eq!(need(Mean { sum: 121, count: 30 }, 4), 2, "a little over four on average");
    }
}
