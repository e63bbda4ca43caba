//! The table `slurm` (H4's manner for operators: every fault at once, with what is allowed).

use std::path::Path;

use tidegate_scaler::provider::rest::Site;
use tidegate_scaler::provider::slurm::SlurmSpec;
use tidegate_shared::offer::Price;
use tidegate_shared::replica::Capacity;

use crate::config::{Config, Source};

fn read(slurm: &str) -> Result<SlurmSpec, Vec<String>> {
    let text = format!("[[deployment]]\nname = \"chat\"\n[deployment.slurm]\n{slurm}\n");
    match Config::parse(&text, Path::new("/etc/tidegate.toml")) {
        Ok(config) => match &config.deployments[0].source {
            Source::Slurm(spec) => Ok((**spec).clone()),
            other => panic!("{other:?}"),
        },
        Err(error) => Err(error.problems().iter().map(ToString::to_string).collect()),
    }
}

const LEAST: &str = "url = \"unix:/run/slurmrestd.sock\"\ncommand = [\"serve\", \"{port}\"]";

#[test]
fn the_least_table_has_one_offer() {
    let spec = read(LEAST).unwrap();
    assert_eq!(spec.access.site, Site::Unix("/run/slurmrestd.sock".into()));
    assert_eq!((spec.ports.clone(), spec.time_limit), (20_000..=29_999, None));
    assert_eq!((spec.dir.as_path(), spec.logs.as_path()), (Path::new("/tmp"), Path::new("/tmp")));
    let offer = &spec.offers[0];
    assert_eq!((offer.name.as_str(), &offer.gres, offer.price), ("default", &None, Price::FREE));
    assert_eq!(spec.offers.len(), 1);
}

#[test]
fn m1_offers_take_what_they_do_not_say_from_the_table() {
    let text = format!(
        "{LEAST}\npartition = \"gpu\"\ncapacity = 2\ntime_limit = \"90s\"\noptions = {{ constraints = \"nvlink\", tasks = 2 }}
        [[deployment.slurm.offer]]\nname = \"a100\"\ngres = \"gpu:a100:1\"\nprice = 1.5\nmemory = \"80GiB\"\ncached = true
        [[deployment.slurm.offer]]\nname = \"h100\"\ngres = \"gpu:h100:1\"\npartition = \"new\"\ncapacity = 4"
    );
    let spec = read(&text).unwrap();
    let [a100, h100] = &spec.offers[..] else { panic!("{:?}", spec.offers) };
    assert_eq!((a100.partition.as_deref(), a100.capacity), (Some("gpu"), Capacity::new(2)));
    assert_eq!((a100.price, a100.memory, a100.cached), (Price(1_500_000), Some(80 << 30), true));
    assert!(!h100.cached);
    assert_eq!((h100.partition.as_deref(), h100.capacity), (Some("new"), Capacity::new(4)));
    assert_eq!(spec.time_limit, Some(2), "whole minutes, rounded up");
    assert_eq!(spec.options["tasks"], 2);
    assert_eq!(spec.options["constraints"], "nvlink");
}

#[test]
fn m1_a_price_cap_that_every_offer_exceeds_is_refused() {
    let text = |cap: &str| {
        format!(
            "{LEAST}\nprice = 9\n[[deployment.slurm.offer]]\nname = \"a\"\nprice = 1.5\n[[deployment.slurm.offer]]\nname = \"b\"\n\
             [[deployment]]\nname = \"other\"\nprice_cap = {cap}\n[deployment.slurm]\n{LEAST}\nprice = 2\n\
             [[deployment.slurm.offer]]\nname = \"a\"\n[[deployment.slurm.offer]]\nname = \"b\"\nprice = 1.5"
        )
    };
    read(&text("1.5")).unwrap();
    let faults = read(&text("1.49")).unwrap_err();
    let rule = "deployment other: price_cap = 1.49: must not be less than the cheapest price in slurm, which is $1.50/h";
    assert!(faults.len() == 1 && faults[0].contains(rule), "{faults:?}");
}

#[test]
fn jobs_are_sized_and_their_rule_may_be_chosen() {
    let replica = "[[deployment.replica]]\nurl = \"http://127.0.0.1:1\"";
    let faults = read(&format!("{LEAST}\n{replica}")).unwrap_err();
    assert!(faults[0].contains("docker, exec, slurm and replica, not slurm and replica"), "{faults:?}");
    let text = format!(
        "[[deployment]]\nname = \"chat\"\nrule = \"concurrency\"\n[deployment.slurm]\n{LEAST}\n{replica}"
    );
    let error = Config::parse(&text, Path::new("t.toml")).unwrap_err();
    assert_eq!(error.problems().len(), 1, "the rule is no fault beside: {:?}", error.problems());
}

#[test]
fn every_fault_is_told_with_what_is_allowed() {
    let faults = read(
        "url = \"https://slurm:6820\"\ncommand = [\"serve\"]\ndir = \"models\"\nports = \"80-90\"\napi = \"38\"
        options = { comment = \"mine\", nodes = [1] }\nenv = { \"A-B\" = \"x\" }\nprice = -1",
    );
    let faults = faults.unwrap_err().join("\n");
    for rule in [
        "url = \"https://slurm:6820\": must be \"unix:\" and the path",
        "command: must hold {port}",
        "dir = \"models\": must be an absolute path on the nodes",
        "ports = \"80-90\": must be two ports from 1024",
        "api = \"38\": must be a version",
        "options.comment: must not be given here",
        "options.nodes = [1]: must be a text",
        "env.A-B: must have a name of letters",
        "price = -1: must be an amount of dollars",
    ] {
        assert!(faults.contains(rule), "{rule}\n{faults}");
    }
    let http = LEAST.replace("unix:/run/slurmrestd.sock", "http://[::1]:6820");
    let faults = read(&http).unwrap_err();
    assert!(faults[0].contains("must come with token"), "{faults:?}");
    let spec = read(&format!("{http}\ntoken = \"jwt\"\napi = \"v0.0.40\"")).unwrap();
    assert_eq!(spec.access.site, Site::Tcp { host: "::1".to_owned(), port: 6820 });
    assert_eq!((spec.access.api, spec.access.token), (Some(40), Some("/etc/jwt".into())));
    let twice = format!(
        "{LEAST}\n[[deployment.slurm.offer]]\nname = \"a\"\n[[deployment.slurm.offer]]\nname = \"a\""
    );
    assert!(read(&twice).unwrap_err()[0].contains("must not be the name of two offers"));
}
