//! What comes first where several things are so, and what is news and no trouble any more.

use super::super::trouble::{is_whole, made_good};
use super::*;

#[test]
fn e2_c1_a_loss_that_a_successor_has_made_good_does_not_come_before_what_holds_the_fleet_now() {
    let mut case = Case::new(1, 9, 3, ScaleReason::AtMax).queue(4, SECOND);
    case.sizing.max = 1;
    // More are wanted than are ready, for other reasons than the loss.
    case.decide(|decision| decision.target = 2);
    case.view.lost = Some((now() - SECOND * 48, "chat-1 is lost: the engine ended".to_owned()));
    let first = &case.answer().findings[0];
    assert_eq!((first.line, first.standing), (Line::AtMax, Standing::Now));
    assert_eq!(case.finding(Line::Lost).standing, Standing::Normal);
    assert!(is_whole(&case.view, &case.seen.replicas) && made_good(&case.view, now()).is_some());
    case.view.lost = Some((now() - SECOND * 3, "chat-2 is lost: the engine ended".to_owned()));
    assert_eq!(case.answer().findings[0].line, Line::Lost, "nobody has become ready since");
}

#[test]
fn e2_h6_a_new_certificate_that_is_not_taken_is_told_and_what_to_do() {
    let mut case = Case::new(1, 0, 0, ScaleReason::AtMin);
    let told = "clients still get the old certificate (expires in 3 d): tls.key = k: must be the private key";
    case.front = Some((told.to_owned(), true));
    case.says(Line::Certificate, Standing::Now, told);
    assert_eq!(case.answer().findings[0].line, Line::Certificate);
    case.front = Some(("the certificate in c expires soon".to_owned(), false));
    assert_eq!(case.finding(Line::Certificate).standing, Standing::Ahead);
    assert_eq!(case.answer().findings[0].line, Line::NothingToDo);
}
