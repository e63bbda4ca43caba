//! Where each value comes from, and which one wins: set by hand, then tuned, then the configuration, then the default.

use std::path::Path;

use tidegate_scaler::store::{Epoch, KeptSetting, KeptTuned, Stamp};

use super::*;

const FILE: &str = "state_dir = \"s\"\n[[deployment]]\nname = \"a\"\nmodel = \"m\"\nmin = 1\n\
    process.command = [\"engine\", \"{port}\"]\nprocess.price = 2\n";

fn at(second: u32) -> Instant {
    Instant::ZERO + Duration::from_secs(1) * second
}

fn epoch(monotonic: u64) -> Epoch {
    let monotonic = Duration::from_secs(monotonic);
    Epoch { boot: "one".to_owned(), monotonic, wall: monotonic }
}

fn tuned(target: u32, model: &str) -> Tuned {
    Tuned { target, model: model.to_owned(), kind: "L4".to_owned(), curve: "[]".to_owned() }
}

/// A deployment of `file`, with what an earlier run kept 100 s before its start.
fn resizer(file: &str, set: &[(&str, &str)], found: Option<Tuned>) -> Resizer {
    let config = Arc::new(Config::parse(file, Path::new("t.toml")).expect("a good file"));
    let mut records = Records::none(&config, epoch(200));
    let (deployment, then) = (DeploymentName::new("a"), Stamp { epoch: epoch(100), at: at(0) });
    records.settings.extend(set.iter().map(|(key, value)| KeptSetting {
        deployment: deployment.clone(),
        key: (*key).to_owned(),
        value: (*value).to_owned(),
        at: then.clone(),
    }));
    records.tuned.extend(found.map(|tuned| KeptTuned { deployment, tuned, at: then }));
    Resizer::new(&config, &config.deployments[0], &records)
}

fn of(resizer: &Resizer, key: &str) -> (Value, Origin) {
    let all = resizer.origins(at(10));
    let Setting { value, origin, .. } = all.into_iter().find(|one| one.key == key).expect("a setting");
    (value, origin)
}

fn set(resizer: &Resizer, key: &'static str, value: Value) -> Result<(), Vec<Problem>> {
    resizer.set(BTreeMap::from([(key, Some(value).filter(|value| !value.is_null()))]), at(4))
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn a1_each_value_tells_where_it_comes_from() {
    let resizer = resizer(FILE, &[("max", "7")], Some(tuned(24, "m")));
    assert_eq!(of(&resizer, "min"), (1.into(), Origin::Configuration));
    assert_eq!(of(&resizer, "max"), (7.into(), Origin::Set(seconds(110))));
    assert_eq!(of(&resizer, "mode"), ("flex".into(), Origin::Default));
    assert_eq!(of(&resizer, "price_cap"), (Value::Null, Origin::Default));
    assert_eq!(of(&resizer, TARGET), (24.into(), Origin::Tuned(seconds(110), "L4".to_owned())));
    assert_eq!(resizer.settings().limits.concurrency, 30, "Q1: what hangs on it follows");
    set(&resizer, "price_cap", 1.5.into()).expect("below every price: that stops growth");
    assert_eq!(of(&resizer, "price_cap"), (1.5.into(), Origin::Set(seconds(6))));
}

#[test]
fn a1_what_is_taken_up_from_an_earlier_run_is_told_beside_the_configuration() {
    let set = [("max", "7"), ("min", "3"), ("price_cap", "2.5")];
    let taken = resizer(FILE, &set, Some(tuned(24, "m"))).taken_up(at(0));
    assert_eq!(
        taken.as_deref(),
        Some(
            "taken up from an earlier run: min is 3, set by hand (1 by the configuration); max is 7, set by hand (4 by default); \
             target_concurrency is 24, tuned (32 by default); price_cap is 2.5, set by hand (none by default); `tidegate scale` \
             shows it and takes it back"
        )
    );
    assert_eq!(resizer(FILE, &[], None).taken_up(at(0)), None);
    let none_fits = resizer(FILE, &[("max", "99")], None);
    assert_eq!(none_fits.taken_up(at(0)), None, "what does not fit is told as that");
}

#[test]
fn a1_by_hand_wins_over_tuned_until_it_is_tuned_again_or_unset() {
    let file = FILE.replace("min = 1", "target_concurrency = 5");
    let resizer = resizer(&file, &[], None);
    assert_eq!(of(&resizer, TARGET), (5.into(), Origin::Configuration));
    resizer.tune(tuned(24, "m"), at(3)).expect("it fits");
    assert_eq!(of(&resizer, TARGET), (24.into(), Origin::Tuned(seconds(7), "L4".to_owned())));
    set(&resizer, TARGET, 9.into()).expect("it fits");
    assert_eq!(of(&resizer, TARGET), (9.into(), Origin::Set(seconds(6))));
    assert!(!resizer.tuned(at(10)).expect("it is still known").in_force);
    resizer.tune(tuned(12, "m"), at(5)).expect("it fits");
    assert_eq!(of(&resizer, TARGET), (12.into(), Origin::Tuned(seconds(5), "L4".to_owned())));
    set(&resizer, TARGET, Value::Null).expect("unset");
    assert_eq!((of(&resizer, TARGET), resizer.tuned(at(10))), ((5.into(), Origin::Configuration), None));
}

#[test]
fn a1_what_was_tuned_with_another_model_does_not_count() {
    let one = resizer(FILE, &[], Some(tuned(24, "older")));
    assert_eq!(of(&one, TARGET), (32.into(), Origin::Default));
    let known = one.tuned(at(10)).expect("it is told all the same");
    assert_eq!((known.in_force, known.age), (false, seconds(110)));
    let refused = one.tune(tuned(24, "older"), at(1)).expect_err("not what is served");
    assert_eq!(sentence(&refused), "model is older, but must be the model that is served, which is m");
    let refused = one.tune(tuned(0, "m"), at(1)).expect_err("no target");
    assert!(sentence(&refused).starts_with("target_concurrency is 0, but must be"), "{refused:?}");
    assert_eq!(of(&one, TARGET).1, Origin::Default, "nothing has changed");
}

#[test]
fn what_does_not_fit_the_file_any_more_is_told_and_left_out_as_a_whole() {
    let resizer = resizer(FILE, &[("min", "9")], Some(tuned(24, "m")));
    assert!(resizer.misfit().is_some_and(|why| why.contains("min is 9, but must not be more than max")));
    assert_eq!(of(&resizer, "min"), (1.into(), Origin::Configuration));
    assert_eq!(of(&resizer, TARGET), (32.into(), Origin::Default));
    set(&resizer, "max", 9.into()).expect("now it fits");
    assert_eq!((resizer.misfit(), of(&resizer, "min").0), (None, 9.into()));
}

#[test]
fn every_setting_that_can_be_changed_has_its_value() {
    let names = values(&Sizing::default()).map(|(key, _)| key);
    assert_eq!(names, RESIZABLE);
}
