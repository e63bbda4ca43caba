//! `tidegate quickstart`: a real model behind the gateway, without a configuration.
//!
//! Fetches what is missing, serves, says a first chat by itself, and prints what a person can paste.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;

use clap::Args;
use tidegate_shared::problem::Problem;

use super::CliError;
use crate::app::{self, Addresses, AppError};
use crate::config::{Config, ConfigError, Level};
use crate::quickstart::{self, Engine, MODEL, Progress, banner, hello};
use crate::telemetry;

/// Arguments of `tidegate quickstart`.
#[derive(Debug, Args)]
pub(super) struct QuickstartArgs {
    /// Where requests are taken.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Where status and metrics are shown.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8081")]
    admin: SocketAddr,
    /// Serve the built-in stand-in engine instead of a model: nothing is fetched.
    #[arg(long)]
    stand_in: bool,
}

/// Prepares and serves until stopped.
pub(super) fn run(args: &QuickstartArgs) -> Result<(), CliError> {
    // What goes wrong; and, after Ctrl-C, what it waits for.
    telemetry::log::start(&format!("{},tidegate::app=info", Level::Warn.as_str()));
    let engine = if args.stand_in { stand_in()? } else { prepare()? };
    let config = configuration(args, &engine)?;
    let mut out = io::stdout().lock();
    writeln!(out, "Model `{MODEL}`: {}.", engine.source)?;
    out.flush()?;
    drop(out);
    let own = format!("{}{}", head(&config), own_file(&engine));
    app::run(config, |addresses| {
        // The first chat wakes the fleet from zero, so that what follows is fast.
        tokio::spawn(async move {
            // Nothing is left to tell it to if standard output is closed.
            let _ = greet(addresses, &own).await;
        });
    })
    .map_err(|error| match error {
        AppError::Listen { key, .. } => {
            CliError::Faults(format!("{error}\nChoose another address with --{key}."))
        }
        error => error.into(),
    })
}

fn prepare() -> Result<Engine, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(quickstart::prepare(&Progress::stderr()))?)
}

/// This program as its own engine.
fn stand_in() -> Result<Engine, CliError> {
    let program = std::env::current_exe()?.to_string_lossy().into_owned();
    let command = [program.as_str(), "engine", "--port", "{port}", "--model", MODEL, "--load-time", "1s"];
    Ok(Engine {
        command: command.map(str::to_owned).to_vec(),
        env: std::collections::BTreeMap::new(),
        model: MODEL,
        slots: quickstart::SLOTS,
        context: quickstart::CONTEXT,
        source: "the built-in stand-in engine, which is no model".to_owned(),
    })
}

/// Where quickstart serves and keeps its records, to stand before [`own_file`].
fn head(config: &Config) -> String {
    let state = toml::Value::from(config.state_dir.display().to_string());
    format!(
        "listen = \"{}\"\nadmin = \"{}\"\nstate_dir = {state}\nlog.access = \"off\"\n\n",
        config.listen, config.admin
    )
}

/// A configuration of one's own to begin with: what quickstart serves, and how.
fn own_file(engine: &Engine) -> String {
    let mut process = toml::Table::new();
    process.insert("command".into(), engine.command.clone().into());
    if !engine.env.is_empty() {
        let env = engine.env.iter().map(|(name, value)| (name.clone(), value.as_str().into()));
        process.insert("env".into(), toml::Value::Table(env.collect()));
    }
    // A table below this one would have to name its parents.
    let process: String = process.iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
    format!(
        "[[deployment]]\nname = \"{MODEL}\"\nmax = 2\ntarget_concurrency = 1\nconcurrency_limit = 1\n\
         queue.headroom = \"10m\"\nqueue_threshold = \"1s\"\n\n[deployment.process]\n{process}"
    )
}

/// From zero to two replicas. Each has one core, so it works on one request at a time; its slots keep that many
/// conversations in its cache. A machine without a GPU is slow, so requests may wait as long as OpenAI's SDKs do. Its
/// records are beside those of `tidegate serve`, so that both can run, and one quickstart per port.
fn configuration(args: &QuickstartArgs, engine: &Engine) -> Result<Config, CliError> {
    let text = format!(
        "listen = \"{listen}\"\nadmin = \"{admin}\"\nlog.access = \"off\"\n{fleet}",
        listen = args.listen,
        admin = args.admin,
        fleet = own_file(engine),
    );
    let config = Config::parse(&text, Path::new("quickstart"));
    // Nobody wrote a file: what is at fault is an option.
    let option = |fault: &Problem| format!("--{} {}: {}", fault.path, fault.value, fault.rule);
    let told = |error: ConfigError| error.problems().iter().map(option).collect::<Vec<_>>().join("\n");
    let mut config = config.map_err(|error| CliError::Faults(told(error)))?;
    let beside = config.state_dir.with_file_name("tidegate-quickstart");
    config.state_dir = beside.join(args.listen.port().to_string());
    Ok(config)
}

async fn greet(addresses: Addresses, own: &str) -> io::Result<()> {
    let (base, admin) = (format!("http://{}", addresses.listen), format!("http://{}", addresses.admin));
    say(&format!("Serving on {base}. The first chat starts a replica, unless one runs from before …"))?;
    match hello(addresses.listen).await {
        Ok(answer) => say(&format!(
            "\n  > {}\n  {}\n\n  (replica {}, route {})\n",
            answer.question,
            answer.text.trim(),
            answer.replica,
            answer.route
        ))?,
        Err(error) => say(&format!("error: {error}\nSee `tidegate status --admin {admin}`.\n"))?,
    }
    say(&format!("Try it yourself; Ctrl-C stops everything.\n\n{}", banner(&base, &admin)))?;
    say(&format!(
        "The same as a `tidegate.toml` of your own, for `tidegate serve` (more: `tidegate example`):\n\n{own}"
    ))
}

fn say(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Source;

    #[test]
    fn a_fault_names_the_option_and_no_file() {
        let admin = "0.0.0.0:9000".parse().expect("an address");
        let args = QuickstartArgs { listen: admin, admin, stand_in: true };
        let told = configuration(&args, &stand_in().expect("this program")).expect_err("a fault").to_string();
        assert!(told.starts_with("--admin \"0.0.0.0:9000\": must be a loopback address"), "{told}");
    }

    #[test]
    fn the_file_that_is_printed_runs_what_quickstart_runs() {
        let engine = Engine {
            command: ["/a b/python", "-I", "launch.py", "{port}", "\"quoted\""].map(str::to_owned).to_vec(),
            env: std::collections::BTreeMap::from([("ONE".to_owned(), "1".to_owned())]),
            ..stand_in().expect("this program")
        };
        let listen = "127.0.0.1:9000".parse().expect("an address");
        let admin = "127.0.0.1:9001".parse().expect("an address");
        let own =
            configuration(&QuickstartArgs { listen, admin, stand_in: true }, &engine).expect("a good one");
        let text = head(&own) + &own_file(&engine);
        let config = Config::parse(&text, Path::new("/t/tidegate.toml")).expect("a good file");
        assert_eq!((config.listen, config.admin, &config.state_dir), (listen, admin, &own.state_dir));
        assert_eq!(config.log.access, own.log.access);
        let [deployment] = config.deployments.as_slice() else { panic!("{:?}", config.deployments) };
        assert_eq!(deployment.name.as_str(), MODEL);
        let Source::Process(process) = &deployment.source else { panic!("{:?}", deployment.source) };
        assert_eq!((&process.command, &process.env), (&engine.command, &engine.env));
    }
}
