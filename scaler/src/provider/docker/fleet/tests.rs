//! What lists of containers mean, in every order of events (C-005).

use tidegate_shared::id::ReplicaId;
use tidegate_shared::offer::Price;
use tidegate_shared::replica::Capacity;

use super::super::super::InstanceState;
use super::super::daemon::{End, Seen, Stage};
use super::super::label::Tag;
use super::{Fleet, Todo, how};

const RECIPE: &str = "recipe";

fn seen(id: u32, container: &str, stage: Stage) -> Seen {
    let (replica, recipe) = (ReplicaId(id), RECIPE.to_owned());
    let tag = Tag { replica, recipe, capacity: Capacity::ONE, port: 8000, gpus: Vec::new() };
    let port = u16::try_from(9000 + id).unwrap();
    Seen { container: container.to_owned(), tag, stage, paused: false, published: Some(port) }
}

fn url(one: &Seen) -> Option<String> {
    one.published.map(|port| format!("http://127.0.0.1:{port}"))
}

fn take_in(fleet: &mut Fleet, seen: Vec<Seen>) -> Todo {
    let turn = fleet.turn();
    fleet.take_in(seen, turn, RECIPE, url)
}

fn ids(fleet: &Fleet) -> Vec<u32> {
    fleet.instances(Price::FREE).iter().map(|one| one.id.0).collect()
}

#[tokio::test]
async fn c3_the_first_list_adopts_what_runs_by_the_same_recipe_and_nothing_else() {
    let mut fleet = Fleet::default();
    let mut other = seen(3, "c", Stage::Runs);
    other.tag.recipe = "another".to_owned();
    let all =
        vec![seen(1, "a", Stage::Runs), seen(2, "b", Stage::Created), other, seen(4, "d", Stage::Ended)];
    let todo = take_in(&mut fleet, all);
    assert_eq!(todo.adopted, [(ReplicaId(1), "a".to_owned())]);
    let strays: Vec<&str> = todo.strays.iter().map(|(_, container)| container.as_str()).collect();
    assert_eq!((strays, ids(&fleet)), (vec!["b", "c", "d"], vec![1]));
    assert_eq!(
        fleet.instances(Price::FREE)[0].state,
        InstanceState::Up { url: "http://127.0.0.1:9001".to_owned() }
    );
    // Later on, what nobody here started is a stray.
    let todo = take_in(&mut fleet, vec![seen(1, "a", Stage::Runs), seen(9, "x", Stage::Runs)]);
    assert_eq!(todo.strays, [(ReplicaId(9), "x".to_owned())]);
    let todo = take_in(&mut fleet, vec![seen(1, "other", Stage::Runs)]);
    assert_eq!(todo.strays, [(ReplicaId(1), "other".to_owned())], "its id alone makes it no replica");
    assert_eq!(ids(&fleet), Vec::<u32>::new(), "and the one that was known is gone");
}

#[tokio::test]
async fn c005_a_list_says_nothing_about_what_changed_while_it_was_made() {
    let mut fleet = Fleet::default();
    take_in(&mut fleet, Vec::new());
    let turn = fleet.turn();
    fleet.begin(ReplicaId(1), Capacity::ONE, "it starts");
    fleet.made(ReplicaId(1), "a");
    fleet.started(ReplicaId(1), "a", 8000, None);
    assert_eq!(fleet.take_in(Vec::new(), turn, RECIPE, url), Todo::default());
    assert_eq!(ids(&fleet), [1], "started after the list was asked for");
    let turn = fleet.turn();
    fleet.stop(ReplicaId(1)).unwrap();
    fleet.remove(ReplicaId(1));
    assert_eq!(fleet.take_in(vec![seen(1, "a", Stage::Runs)], turn, RECIPE, url), Todo::default());
    assert_eq!(ids(&fleet), Vec::<u32>::new(), "stopped after the list was asked for");
    let todo = take_in(&mut fleet, vec![seen(1, "a", Stage::Runs)]);
    assert_eq!(todo.strays, [(ReplicaId(1), "a".to_owned())], "a newer list counts");
}

#[tokio::test]
async fn an_end_that_an_event_told_counts_before_the_list_shows_it() {
    let mut fleet = Fleet::default();
    take_in(&mut fleet, vec![seen(1, "a", Stage::Runs)]);
    fleet.died("a");
    let todo = take_in(&mut fleet, vec![seen(1, "a", Stage::Runs)]);
    assert_eq!(todo.ended, [(ReplicaId(1), "a".to_owned())]);
    fleet.ended(ReplicaId(1), "a", &End { code: 1, ..End::default() }, vec!["boom".to_owned()]);
    let ended = InstanceState::Exited { how: "exit code 1".to_owned(), output: vec!["boom".to_owned()] };
    assert_eq!(fleet.instances(Price::FREE)[0].state, ended);
    assert_eq!(take_in(&mut fleet, vec![seen(1, "a", Stage::Ended)]), Todo::default(), "asked once");
    assert_eq!(fleet.stop(ReplicaId(1)), Some(("a".to_owned(), Some(vec!["boom".to_owned()]))));
}

#[tokio::test]
async fn another_address_is_the_end_of_a_replica() {
    let mut fleet = Fleet::default();
    take_in(&mut fleet, vec![seen(1, "a", Stage::Runs)]);
    let moved = Seen { published: Some(7), ..seen(1, "a", Stage::Runs) };
    take_in(&mut fleet, vec![moved]);
    let InstanceState::Exited { how, .. } = &fleet.instances(Price::FREE)[0].state else {
        panic!("it goes on")
    };
    assert_eq!(how, "its address changed from http://127.0.0.1:9001 to http://127.0.0.1:7");
}

#[test]
fn ends_are_told_for_people() {
    let end = |code, out_of_memory, error: &str| End {
        running: false,
        paused: None,
        code,
        out_of_memory,
        error: error.to_owned(),
    };
    assert_eq!(how(&end(3, false, "")), "exit code 3");
    assert_eq!(how(&end(139, false, "")), "exit code 139: signal 11");
    assert_eq!(how(&end(137, true, "")), "exit code 137: out of memory, at the container's limit");
    assert_eq!(how(&end(128, false, "cannot mount")), "exit code 128: cannot mount");
}

#[tokio::test]
async fn c6_a_container_that_is_paused_is_parked_from_the_first_list_on() {
    let mut fleet = Fleet::default();
    let paused = Seen { paused: true, ..seen(1, "a", Stage::Runs) };
    take_in(&mut fleet, vec![paused.clone()]);
    let url = "http://127.0.0.1:9001".to_owned();
    assert_eq!(fleet.instances(Price::FREE)[0].state, InstanceState::Parked { url: url.clone() });
    fleet.set_paused(ReplicaId(1), false);
    assert_eq!(fleet.instances(Price::FREE)[0].state, InstanceState::Up { url });
    take_in(&mut fleet, vec![paused]);
    fleet.died("a");
    let todo = take_in(&mut fleet, vec![seen(1, "a", Stage::Runs)]);
    assert_eq!(todo.ended, [(ReplicaId(1), "a".to_owned())], "it can end all the same");
}
