//! The jobs rule in time: images and videos.

use super::fleet::Engines;
use super::*;
use crate::config::{RuleChoice, Task};

fn jobs(task: Task, ready: u32) -> Engines {
    let target_concurrency = task.target_concurrency(RuleChoice::Auto);
    Engines::new(Sizing { task, target_concurrency, max: 8, ..Sizing::default() }, ready)
}

#[test]
fn b_jobs_image_4_and_video_2_per_replica() {
    for (task, fits) in [(Task::Image, 4), (Task::Video, 2)] {
        let mut engines = jobs(task, 1);
        engines.in_flight = fits;
        let plan = engines.pass(90);
        assert_eq!((plan.why.rule, plan.target, plan.why.needed), (Rule::Jobs, 1, 1));
        engines.in_flight = fits + 1;
        assert_eq!(engines.until_action().1.target, 2, "{task:?}");
        engines.in_flight = fits * 2;
        assert_eq!(engines.pass(300).why.reason, ScaleReason::Steady);
    }
}

#[test]
fn e1_what_is_in_progress_needs_at_least_one_from_its_first_moment() {
    let mut engines = jobs(Task::Image, 1);
    engines.pass(60);
    engines.in_flight = 4;
    assert_eq!(engines.second().why.needed, 1, "the mean is still near none");
    engines.in_flight = 0;
    assert_eq!(engines.pass(60).why.needed, 0);
}

#[test]
fn b4_at_most_two_are_added_at_a_time() {
    let mut engines = jobs(Task::Image, 1);
    engines.in_flight = 32;
    let (seconds, plan) = engines.until_action();
    assert_eq!((seconds, plan.target, plan.why.reason), (30, 3, ScaleReason::Step { most: 2 }));
    engines.pass(90);
    assert_eq!(engines.count(), 8);
}

#[test]
fn b_jobs_down_one_at_a_time_and_only_when_fully_idle() {
    let mut engines = jobs(Task::Image, 3);
    engines.in_flight = 1;
    engines.pass(3600);
    assert_eq!(engines.count(), 3, "one job is not fully idle");
    engines.in_flight = 0;
    let (seconds, plan) = engines.until_action();
    assert_eq!((seconds, plan.target, plan.why.reason), (151, 2, ScaleReason::Idle));
    assert_eq!(engines.until_action().0, 1, "the drained one stops");
    assert_eq!(engines.until_action().0, 150);
}

#[test]
fn c3_an_adopted_fleet_is_kept_for_150_s() {
    let mut engines = jobs(Task::Video, 2);
    engines.pass(150);
    assert_eq!(engines.count(), 2);
    engines.second();
    assert_eq!(engines.count(), 1);
}

#[test]
fn q3_a_waiting_job_starts_the_first_replica_at_once() {
    let mut engines = jobs(Task::Video, 0);
    engines.in_flight = 1;
    assert_eq!(engines.second().why.reason, ScaleReason::FromZero);
    assert_eq!(engines.count(), 1);
}
