//! The settings of rules and money.

use tidegate_scaler_core::config::RuleChoice;
use tidegate_shared::decision::Rule;
use tidegate_shared::offer::Money;

use super::*;

#[test]
fn b5_the_time_of_quiet_is_150_s_unless_a_window_is_set() {
    let cool = |settings: &str| started(settings).sizing.cool.as_secs();
    assert_eq!((cool(""), cool("mode = \"active\""), cool("window = \"5s\"")), (150, 150, 5));
}

#[test]
fn every_rule_has_its_word() {
    use RuleChoice::{Auto, Fixed};
    for (settings, rule) in [
        ("", Fixed(Rule::Concurrency)),
        ("task = \"embeddings\"", Fixed(Rule::Concurrency)),
        ("task = \"image\"", Fixed(Rule::Jobs)),
        ("task = \"video\"", Fixed(Rule::Jobs)),
        ("rule = \"auto\"", Auto),
        ("rule = \"concurrency\"", Fixed(Rule::Concurrency)),
        ("rule = \"token-load\"", Fixed(Rule::TokenLoad)),
        ("rule = \"jobs\"", Fixed(Rule::Jobs)),
    ] {
        assert_eq!(started(settings).sizing.rule, rule);
    }
    let fault = "line 3: deployment m: rule = \"tokens\": must be one of \"auto\", \"concurrency\", \"token-load\", \"jobs\"";
    assert_eq!(faults_of("rule = \"tokens\""), [fault]);
}

#[test]
fn m1_m3_prices_must_leave_something_to_start_and_the_base_fee_is_for_warm_replicas() {
    let dear = started("mode = \"active\"\nprice_cap = 2.5\nbase_fee = 0.25");
    assert_eq!((dear.sizing.price_cap, dear.base_fee), (Some(Price(2_500_000)), Price(250_000)));
    assert_eq!(dear.sizing.worst_case(dear.base_fee), Some(Price(11_000_000)));
    assert_eq!(
        faults_of("base_fee = 0.25"),
        [
            "line 3: deployment m: base_fee = 0.25: must not be given in flex mode: it is for the warm replicas of active mode"
        ]
    );
    let text = "[[deployment]]\nname = \"m\"\nprice_cap = 1\n[deployment.process]\n\
        command = [\"e\", \"{port}\"]\nprice = 1.5\n";
    assert_eq!(
        faults(text),
        [
            "line 3: deployment m: price_cap = 1: must not be less than process.price, which is $1.50/h: nothing could start"
        ]
    );
}

#[test]
fn a6_m3_the_budget_is_for_the_gateway_as_a_whole() {
    let of =
        |text: &str| parse(&format!("{text}[[deployment]]\nname = \"m\"\n{PROCESS}")).expect("good").budget;
    assert_eq!(of(""), Bounds::default());
    let budget = of("[budget]\nreplicas = 16\ncredit = 12.5\n");
    assert_eq!(budget, Bounds { replicas: Some(16), credit: Some(Money(12_500_000)) });
    let text = format!("[budget]\ncredit = -1\n[[deployment]]\nname = \"m\"\n{PROCESS}");
    assert_eq!(
        faults(&text),
        [
            "line 2: budget.credit = -1: must be an amount of dollars from 0 to 1000000 with up to 6 digits after the point, \
          such as 2.50"
        ]
    );
}

#[test]
fn c6_none_is_parked_unless_that_is_set() {
    assert_eq!((started("").sizing.parked, started("parked = 2").sizing.parked), (0, 2));
    let fault = "line 3: deployment m: parked = 33: must be a whole number from 0 to 32";
    assert_eq!(faults_of("parked = 33"), [fault]);
}

#[test]
fn m1_the_memory_that_a_model_needs_must_be_had_from_some_offer() {
    let faults = |settings: &str, slurm: &str| {
        let text = format!(
            "[[deployment]]\nname = \"a\"\n{settings}\nslurm = {{ url = \"unix:/run/s\", command = [\"e\", \"{{port}}\"]{slurm} }}\n"
        );
        match Config::parse(&text, Path::new("t.toml")) {
            Ok(config) => Ok(config.deployments[0].sizing.memory),
            Err(error) => Err(error.problems().iter().map(ToString::to_string).collect::<Vec<_>>()),
        }
    };
    let need = "gpu_memory = \"40GiB\"";
    assert_eq!(faults("", ""), Ok(None));
    assert_eq!(faults(need, ", memory = \"80GiB\""), Ok(Some(40 << 30)));
    let small = faults(need, ", memory = \"24GiB\"").unwrap_err();
    assert!(small[0].contains("24GiB at most: nothing could start"), "{small:?}");
    let silent = faults(need, "").unwrap_err();
    assert!(silent[0].contains("no offer of slurm tells its memory"), "{silent:?}");
    let elsewhere = faults_of(need);
    assert!(elsewhere[0].contains("only offers of slurm tell their memory"), "{elsewhere:?}");
}
