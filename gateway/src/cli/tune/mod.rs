//! `tidegate tune`: has a running gateway measure one replica (A1) and shows how it goes. The gateway measures, decides and
//! keeps the target; when this command ends, however it does, the replica serves again.

mod feed;
mod show;

use std::io::{self, Write};

use clap::Args;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};
use thiserror::Error;
use tidegate_scaler_core::tune::search::MOST;
use tidegate_shared::time::Duration;

use crate::admin::tune::MOST_TOKENS;
use crate::config::BaseUrl;

use super::CliError;
use super::admin::{AdminArgs, AdminError};
use super::scale::whole;
use super::style::Style;
use crate::tune::Event;
use feed::Feed;
use show::Screen;

pub(super) const EXAMPLES: &str = "\
One replica is set aside while the others serve, and is given more and more requests at a time, until its throughput \
stops growing or a goal breaks. The only replica goes on serving, and any request of a user ends the tuning.

Examples:
  tidegate tune chat
  tidegate tune chat --ttft-p95 500ms --tpot-p95 40ms
  tidegate tune chat --prompt-tokens 2000 --output-tokens 300 --dry-run
  tidegate tune chat --at 1,2,4,8,16,32 --dry-run     only these, as a sweep";

/// Arguments of `tidegate tune`.
#[derive(Debug, Args)]
pub(super) struct TuneArgs {
    /// The deployment.
    #[arg(value_name = "MODEL")]
    model: String,
    /// The replica to measure; the one that is missed least unless given.
    #[arg(long, value_name = "NAME")]
    replica: Option<String>,
    /// Mean tokens of a prompt; as recent traffic has them, else 512.
    #[arg(long, value_name = "N", value_parser = tokens)]
    prompt_tokens: Option<u64>,
    /// Mean tokens of an answer; as recent traffic has them, else 128.
    #[arg(long, value_name = "N", value_parser = tokens)]
    output_tokens: Option<u64>,
    /// Longest time to the first token, for 95 of 100 requests.
    #[arg(long, value_name = "TIME", value_parser = time)]
    ttft_p95: Option<Duration>,
    /// Longest time for each further token, for 95 of 100 requests.
    #[arg(long, value_name = "TIME", value_parser = time)]
    tpot_p95: Option<Duration>,
    /// Measure these numbers of requests at a time, and no others.
    #[arg(long, value_name = "N,N,…", value_delimiter = ',', value_parser = at)]
    at: Vec<u32>,
    /// How long it may take; a target that is not certain by then is shown, and not taken [default: 10m].
    #[arg(long, value_name = "TIME", value_parser = time)]
    limit: Option<Duration>,
    /// Show the target, and leave the fleet as it is.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    gateway: AdminArgs,
}

/// One of the numbers of requests at a time.
fn at(text: &str) -> Result<u32, String> {
    whole(text, 1..=MOST)
}

/// A number of tokens.
fn tokens(text: &str) -> Result<u64, String> {
    whole(text, 1..=MOST_TOKENS)
}

/// A time on the command line.
fn time(text: &str) -> Result<Duration, String> {
    let read = humantime::parse_duration(text).map_err(|_| ());
    read.map_err(|()| "it must be a number with a unit, such as 500ms, 2s or 10m".to_owned())
}

/// Why there is no target.
#[derive(Debug, Error)]
pub(super) enum TuneError {
    #[error("{0}")]
    Failed(String),
    #[error("stopped; the replica serves again")]
    Interrupted,
    #[error("the gateway ended it; the replica serves again if the gateway runs")]
    Cut,
}

/// Asks, and shows what comes.
pub(super) fn run(args: &TuneArgs) -> Result<(), CliError> {
    let url = &args.gateway.url()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let path = format!("/deployments/{}/tune", utf8_percent_encode(&args.model, NON_ALPHANUMERIC));
        let feed = Feed::open(url, &path, Value::Object(asked(args)).to_string()).await?;
        tokio::select! {
            shown = follow(args, url, feed) => shown,
            interrupted = tokio::signal::ctrl_c() => {
                interrupted?;
                if Style::of(&io::stdout()).terminal {
                    writeln!(io::stdout())?;
                }
                Err(TuneError::Interrupted.into())
            }
        }
    })
}

async fn follow(args: &TuneArgs, url: &BaseUrl, mut feed: Feed) -> Result<(), CliError> {
    let style = Style::of(&io::stdout());
    let mut screen = Screen::new(style);
    while let Some(line) = feed.line().await? {
        let event: Event = serde_json::from_slice(&line)
            .map_err(|error| AdminError::foreign(url, format!("unexpected event: {error}")))?;
        let text = match args.gateway.json {
            true => format!("{}\n", String::from_utf8_lossy(&line)),
            false => screen.take(&event),
        };
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()?;
        match event {
            Event::Found { .. } => return Ok(()),
            Event::Failed { why } => return Err(TuneError::Failed(why).into()),
            _ => {}
        }
    }
    Err(TuneError::Cut.into())
}

/// The body of the request: what was given, and nothing else.
fn asked(args: &TuneArgs) -> Map<String, Value> {
    let millis = |time: Duration| json!(time.as_micros() as f64 / 1e3);
    let given = [
        ("replica", args.replica.as_ref().map(|replica| json!(replica))),
        ("prompt_tokens", args.prompt_tokens.map(|tokens| json!(tokens))),
        ("output_tokens", args.output_tokens.map(|tokens| json!(tokens))),
        ("ttft_p95_ms", args.ttft_p95.map(millis)),
        ("tpot_p95_ms", args.tpot_p95.map(millis)),
        ("at", (!args.at.is_empty()).then(|| json!(args.at))),
        ("limit_s", args.limit.map(|limit| json!(limit.as_secs()))),
        ("dry_run", args.dry_run.then_some(Value::Bool(true))),
    ];
    given.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: TuneArgs,
    }

    #[test]
    fn a_time_that_is_none_is_told_with_its_option_and_what_it_may_be() {
        for (option, value) in [("--ttft-p95", "banana"), ("--tpot-p95", "40"), ("--limit", "-1s")] {
            let line = ["tune", "chat", &format!("{option}={value}")].map(str::to_owned);
            let told = Line::try_parse_from(line).map(drop).expect_err(value).to_string();
            for part in [option, value, "must be a number with a unit, such as 500ms"] {
                assert!(told.contains(part), "{told}");
            }
        }
    }

    #[test]
    fn a1_a_number_that_is_none_is_told_with_its_option_and_what_is_allowed() {
        for (option, value, parts) in [
            ("--at", "0,x", ["'0'", "--at", "a whole number from 1 to 1024"]),
            ("--at", "1,x", ["'x'", "--at", "a whole number from 1 to 1024"]),
            ("--prompt-tokens", "x", ["'x'", "--prompt-tokens", "a whole number from 1 to 1000000"]),
        ] {
            let line = ["tune", "chat", &format!("{option}={value}")].map(str::to_owned);
            let told = Line::try_parse_from(line).map(drop).expect_err(value).to_string();
            parts.iter().for_each(|part| assert!(told.contains(part), "{told}"));
        }
    }

    #[test]
    fn a1_only_what_was_given_is_asked() {
        let asked = |line: &str| Value::Object(super::asked(&Line::parse_from(line.split(' ')).args));
        assert_eq!(asked("tune chat"), json!({}));
        assert_eq!(
            asked("tune chat --ttft-p95 500ms --tpot-p95 1500us --at 1,2,4 --limit 2m --dry-run"),
            json!({"ttft_p95_ms": 500.0, "tpot_p95_ms": 1.5, "at": [1, 2, 4], "limit_s": 120, "dry_run": true})
        );
    }
}
