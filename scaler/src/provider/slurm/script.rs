//! Writes the job of one replica: the script that runs on the node, and the request that submits it.
//!
//! Who chooses the port: the script, on the node, because only there is known what is free; it tells the port in the
//! comment of its own job, once a process of the job listens there. So a port is never another's, nothing is needed but
//! the controller, and a restarted gateway finds the ports where it finds the jobs.
//!
//! Pure: never submits anything.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::mark::Mark;
use super::spec::{SlurmOffer, SlurmSpec};

/// What stands for the port in arguments and in values of the environment.
pub(super) const PORT: &str = "{port}";

/// The part of the script that is the same for all.
const RUN: &str = include_str!("job.sh");

/// Where programs are found unless the operator's `env` says otherwise.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/slurm/bin";

/// The first version whose environment is a list, and whose generic resources are `tres_per_node`.
const LISTS: u32 = 39;
/// The first version that wants the script inside the job.
const INSIDE: u32 = 40;

/// The body of the request that submits a job to the API of version `api`.
pub(super) fn submission(spec: &SlurmSpec, offer: &SlurmOffer, mark: &Mark, api: u32) -> Value {
    let mut job: Map<String, Value> =
        spec.options.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    let mut set = |name: &str, value: Value| job.insert(name.to_owned(), value);
    set("name", mark.job_name().into());
    set("comment", mark.to_string().into());
    set("current_working_directory", spec.dir.display().to_string().into());
    let log = spec.log(mark.id).display().to_string();
    set("standard_output", log.clone().into());
    set("standard_error", log.into());
    set("environment", environment(spec, api));
    // A job that Slurm starts anew is another engine; the planner orders its own successors.
    set("requeue", false.into());
    let texts = [("partition", &offer.partition), ("account", &spec.account), ("qos", &spec.qos)];
    for (name, value) in texts.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))) {
        set(name, value.into());
    }
    if let Some(minutes) = spec.time_limit {
        set("time_limit", number(minutes, api));
    }
    match &offer.gres {
        Some(gres) if api >= LISTS => set("tres_per_node", tres(gres).into()),
        Some(gres) => set("gres", gres.clone().into()),
        None => None,
    };
    let script = script(spec, mark);
    if api >= INSIDE {
        job.insert("script".to_owned(), script.into());
        return json!({ "job": job });
    }
    json!({ "script": script, "job": job })
}

fn number(value: u32, api: u32) -> Value {
    if api >= LISTS { json!({ "set": true, "infinite": false, "number": value }) } else { value.into() }
}

/// `gpu:1,license:2` as newer versions want it: `gres/gpu:1,gres/license:2`.
fn tres(gres: &str) -> String {
    let full = |one: &str| if one.starts_with("gres/") { one.to_owned() } else { format!("gres/{one}") };
    gres.split(',').map(full).collect::<Vec<_>>().join(",")
}

fn environment(spec: &SlurmSpec, api: u32) -> Value {
    let mut env = spec.env.clone();
    env.entry("PATH".to_owned()).or_insert_with(|| PATH.to_owned());
    if api >= LISTS {
        env.iter().map(|(name, value)| format!("{name}={value}")).collect()
    } else {
        json!(env)
    }
}

/// The script. Values of the environment are not in it: it can be read by more people than they may.
fn script(spec: &SlurmSpec, mark: &Mark) -> String {
    let mut text = String::from("#!/bin/bash\n");
    let (low, high) = (*spec.ports.start(), *spec.ports.end());
    let count = u32::from(high.saturating_sub(low)) + 1;
    let words: Vec<String> = spec.command.iter().map(|word| quoted(word)).collect();
    // Writing to a string cannot fail.
    let _ = write!(text, "mark={}\nlow={low} count={count}\n\n", quoted(&mark.to_string()));
    text.push_str("# Becomes the engine.\nengine_of_this_job() {\n");
    for (name, _) in spec.env.iter().filter(|(_, value)| value.contains(PORT)) {
        let _ = writeln!(text, "  export {name}=\"${{{name}//'{PORT}'/$port}}\"");
    }
    let _ = write!(text, "  exec {}\n}}\n\n{RUN}", words.join(" "));
    text
}

/// A word that the shell takes as it is, but for [`PORT`].
fn quoted(word: &str) -> String {
    let plain = |part: &str| format!("'{}'", part.replace('\'', r"'\''"));
    word.split(PORT).map(plain).collect::<Vec<_>>().join("\"$port\"")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::PathBuf;
    use std::process::Command;

    use tidegate_shared::id::{DeploymentName, ReplicaId};
    use tidegate_shared::offer::Price;
    use tidegate_shared::replica::Capacity;

    use super::*;
    use crate::provider::rest::Site;
    use crate::provider::slurm::spec::SlurmAccess;

    fn spec(command: &[&str]) -> SlurmSpec {
        let site = Site::Unix(PathBuf::from("/run/slurmrestd.sock"));
        let offer = SlurmOffer {
            name: "a100".to_owned(),
            partition: Some("gpu".to_owned()),
            gres: Some("gpu:a100:1,shard:2".to_owned()),
            capacity: Capacity::ONE,
            price: Price::FREE,
            memory: None,
            cached: false,
        };
        let env = [("SECRET", "hush"), ("BIND", "[::]:{port}")];
        SlurmSpec {
            deployment: DeploymentName::new("org/chat"),
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            env: env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            dir: PathBuf::from("/models"),
            logs: PathBuf::from("/logs"),
            ports: 20_000..=20_009,
            account: None,
            qos: Some("high".to_owned()),
            time_limit: Some(90),
            options: BTreeMap::from([("constraints".to_owned(), "nvlink".into())]),
            offers: vec![offer],
            access: SlurmAccess { site, token: None, user: None, api: None },
            start_limit: crate::control::START_LIMIT,
        }
    }

    fn mark() -> Mark {
        let (owner, recipe) = ("0123".to_owned(), "c0ffee".to_owned());
        Mark {
            owner,
            deployment: DeploymentName::new("org/chat"),
            id: ReplicaId(7),
            offer: "a100".to_owned(),
            recipe,
        }
    }

    fn submitted(api: u32) -> Value {
        let spec = spec(&["serve"]);
        submission(&spec, &spec.offers[0], &mark(), api)["job"].take()
    }

    #[test]
    fn each_version_gets_the_fields_that_it_knows() {
        let (old, new) = (submitted(38), submitted(40));
        for job in [&old, &new] {
            assert_eq!(job["name"], "tidegate:org/chat-7");
            assert_eq!(job["comment"], mark().to_string());
            assert_eq!(job["standard_output"], "/logs/tidegate-org+chat-7.%j.log");
            assert_eq!((&job["partition"], &job["qos"]), (&json!("gpu"), &json!("high")));
            assert_eq!(job["constraints"], "nvlink");
            assert_eq!(job.get("account"), None);
        }
        assert_eq!(old["gres"], "gpu:a100:1,shard:2");
        assert_eq!(old["time_limit"], 90);
        assert_eq!(old["environment"], json!({"BIND": "[::]:{port}", "PATH": PATH, "SECRET": "hush"}));
        assert_eq!(new["tres_per_node"], "gres/gpu:a100:1,gres/shard:2");
        assert_eq!(new["time_limit"]["number"], 90);
        assert_eq!(new["environment"][0], "BIND=[::]:{port}");
        assert_eq!(new.get("gres"), None);
    }

    #[test]
    fn the_engine_gets_its_words_and_its_port_and_the_script_no_secret() {
        let spec = spec(&["printf", "%s|", "it's {port}", "$HOME `x` \"y\"\n", "{port}{port}", "a'{port}'b"]);
        let text = script(&spec, &mark());
        assert!(!text.contains("hush"), "{text}");
        let (head, _) = text.split_once("\n# Runs one replica").unwrap();
        let run = format!("{head}\nport=4711\nengine_of_this_job\n");
        let output = Command::new("bash").args(["-c", &run]).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(said, "it's 4711|$HOME `x` \"y\"\n|47114711|a'4711'b|");

        let spec = SlurmSpec { command: ["sh", "-c", "echo $BIND"].map(str::to_owned).to_vec(), ..spec };
        let text = script(&spec, &mark());
        let (head, _) = text.split_once("\n# Runs one replica").unwrap();
        let run = format!("{head}\nport=4711\nengine_of_this_job\n");
        let output = Command::new("bash").args(["-c", &run]).env("BIND", "[::]:{port}").output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "[::]:4711\n");
    }

    #[test]
    fn the_script_is_one_that_bash_reads() {
        let text = script(&spec(&["serve", "--port", "{port}"]), &mark());
        let output = Command::new("bash").args(["-n", "-c", &text]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(text.starts_with("#!/bin/bash\n"));
    }
}
