//! A fleet that sleeps.

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
