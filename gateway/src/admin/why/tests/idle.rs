//! A fleet that sleeps, and one whose provider is silent or holds what it has taken.

use super::*;

#[test]
fn e2_c6_who_is_parked_while_nothing_is_asked_is_told_with_the_cost_and_who_wakes_it() {
    let mut case = Case::new(0, 0, 0, ScaleReason::Steady);
    case.sizing.min = 0;
    case.says(
        Line::NothingToDo,
        Standing::Now,
        "nothing is in progress and nothing runs; the next request starts a replica",
    );
    case.add(Phase::Parked, 3);
    let one = "nothing is in progress; 1 replica is parked, and the next request wakes it";
    case.says(Line::NothingToDo, Standing::Now, one);
    case.add(Phase::Parked, 3);
    case.seen.replicas.iter_mut().for_each(|replica| replica.price = Price(36 * DOLLAR));
    let two = "nothing is in progress; 2 replicas are parked and cost $72.00/h";
    case.says(Line::NothingToDo, Standing::Now, &format!("{two}, and the next request wakes one"));
    case.sizing.autoscale = false;
    case.says(Line::NothingToDo, Standing::Now, two);
}

#[test]
fn e2_c2_a_silent_provider_is_told_with_its_next_try_or_that_it_is_being_asked() {
    let mut case = Case::new(2, 4, 2, ScaleReason::ProviderError);
    case.view.provider_error = Some("the docker daemon does not answer".to_owned());
    let advice = |case: &Case| case.finding(Line::ProviderDown).advice.unwrap();
    case.view.asked_again = Some(now() + SECOND * 16);
    assert_eq!(advice(&case), "look at the provider; it is asked again in 16 s");
    case.view.asked_again = Some(now());
    assert_eq!(advice(&case), "look at the provider; it is being asked now");
}

#[test]
fn e2_c2_a_silent_provider_keeps_a_fleet_only_where_fewer_would_do() {
    let mut case = Case::new(2, 4, 2, ScaleReason::ProviderError);
    assert_eq!(case.finding(Line::WontDrop).standing, Standing::No);
    case.decide(|decision| decision.needed = 1);
    let held = "the provider does not answer, so the fleet is held as it is";
    case.says(Line::WontDrop, Standing::Now, held);
    case.sizing.min = 2;
    case.says(Line::WontDrop, Standing::No, "min is 2, and 2 are there");
}

#[test]
fn e2_c2_of_several_that_are_held_the_first_is_told_with_why() {
    let mut case = Case::new(0, 9, 2, ScaleReason::ProviderHolds { count: 2 });
    for id in [1, 2] {
        case.add(Phase::Provisioning, 60);
        case.view.pending.insert(ReplicaId(id), format!("Slurm does not start its job: {id}"));
        case.view.held.insert(ReplicaId(id), "ask for less".to_owned());
    }
    let why = "waiting does not help; chat-1: Slurm does not start its job: 1";
    case.says(Line::StartsFail, Standing::Now, &format!("chat-1 and chat-2 are held, and {why}"));
}
