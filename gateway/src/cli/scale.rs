//! `tidegate scale` and `tidegate credit`: change what a running gateway may do, or show it. One request to the admin
//! port each; what is allowed is for the gateway to say.

use std::fmt::Display;
use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use http::Method;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};
use thiserror::Error;
use tidegate_scaler_core::config::{MAX_REPLICAS, MAX_TARGET};
use tidegate_shared::offer::{Money, Price};

use crate::admin::dollars::written as dollars_of;
use crate::admin::manage::{CreditAnswer, SizingAnswer, SizingValue};
use crate::config::amount;

use super::CliError;
use super::admin::{AdminArgs, change, parse, verbatim};
use super::grid::{Grid, age, counted};
use super::style::{Style, clean};

pub(super) const SCALE: &str = "\
Without options, shows the size and where each value comes from. What is set holds over restarts and wins over the \
configuration, until it is unset.

Examples:
  tidegate scale chat --min 1 --max 8
  tidegate scale chat --mode active
  tidegate scale chat --unset min --unset max";

/// What stays as it is in a path.
pub(super) const NAME: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.').remove(b':');

/// Arguments of `tidegate scale`.
#[derive(Debug, Args)]
pub(super) struct ScaleArgs {
    /// The deployment.
    #[arg(value_name = "MODEL")]
    model: String,
    /// Fewest replicas.
    #[arg(long, value_name = "N", value_parser = replicas)]
    min: Option<u32>,
    /// Most replicas.
    #[arg(long, value_name = "N", value_parser = replicas)]
    max: Option<u32>,
    /// flex goes to zero when idle; active keeps min warm.
    #[arg(long)]
    mode: Option<Mode>,
    /// Requests for each replica to aim at.
    #[arg(long, value_name = "N", value_parser = requests)]
    target: Option<u32>,
    /// Dollars an hour that a new replica may cost at most.
    #[arg(long, value_name = "DOLLARS", value_parser = dollars)]
    price_cap: Option<serde_json::Number>,
    /// off holds the fleet at min.
    #[arg(long)]
    autoscale: Option<Switch>,
    /// Leave this one to the configuration again; may be given several times.
    #[arg(long, value_name = "SETTING")]
    unset: Vec<Setting>,
    #[command(flatten)]
    gateway: AdminArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mode {
    Flex,
    Active,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Switch {
    #[value(alias = "true")]
    On,
    #[value(alias = "false")]
    Off,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Setting {
    Min,
    Max,
    Mode,
    /// As the configuration names it, too.
    #[value(alias = "target_concurrency")]
    Target,
    Autoscale,
    #[value(alias = "price_cap")]
    PriceCap,
}

/// Arguments of `tidegate credit`.
#[derive(Debug, Args)]
pub(super) struct CreditArgs {
    /// Dollars to add, such as 25.50; a negative amount takes back. Without, shows the credit.
    #[arg(value_name = "AMOUNT", allow_negative_numbers = true, value_parser = amount)]
    amount: Option<Money>,
    #[command(flatten)]
    gateway: AdminArgs,
}

/// A setting cannot be both.
#[derive(Debug, Error)]
#[error("--unset {0} and --{0} are at odds; one of them must go")]
pub(super) struct AtOdds(&'static str);

/// Changes a size, and shows it.
pub(super) fn run(args: &ScaleArgs) -> Result<(), CliError> {
    at_odds(args).map_or(Ok(()), |setting| Err(AtOdds(setting)))?;
    let url = &args.gateway.url()?;
    let changes = changes(args);
    let path = format!("/deployments/{}/sizing", utf8_percent_encode(&args.model, NAME));
    let (method, body) = match changes.is_empty() {
        true => (Method::GET, String::new()),
        false => (Method::PUT, Value::Object(changes).to_string()),
    };
    let answer = change(url, method, &path, body)?;
    let stdout = io::stdout();
    let text = match args.gateway.json {
        true => verbatim(url, &answer)?,
        false => size(&parse::<SizingAnswer>(url, &answer)?, Style::of(&stdout)),
    };
    print(&text)
}

/// Tops up the credit, and shows it.
pub(super) fn credit(args: &CreditArgs) -> Result<(), CliError> {
    let url = &args.gateway.url()?;
    let (method, body) = match &args.amount {
        None => (Method::GET, String::new()),
        Some(amount) => (Method::POST, top_up(*amount)),
    };
    let answer = change(url, method, "/credit", body)?;
    if args.gateway.json {
        return print(&verbatim(url, &answer)?);
    }
    let CreditAnswer { configured, added, left, unsaved } = parse(url, &answer)?;
    let spent = Money(configured.0 + added.0 - left.0);
    print(&format!(
        "{left} left; {configured} by the configuration, {added} added, {spent} spent\n{}",
        not_saved(unsaved)
    ))
}

/// The body of a top-up, exact to the millionth.
fn top_up(Money(micros): Money) -> String {
    format!("{{\"amount\": {}}}", dollars_of(micros))
}

fn changes(args: &ScaleArgs) -> Map<String, Value> {
    let mut changes = Map::new();
    for setting in &args.unset {
        let key = match setting {
            Setting::Min => "min",
            Setting::Max => "max",
            Setting::Mode => "mode",
            Setting::Target => "target_concurrency",
            Setting::Autoscale => "autoscale",
            Setting::PriceCap => "price_cap",
        };
        changes.insert(key.to_owned(), Value::Null);
    }
    let mode = args.mode.map(|mode| match mode {
        Mode::Flex => "flex",
        Mode::Active => "active",
    });
    let given = [
        ("min", args.min.map(|min| json!(min))),
        ("max", args.max.map(|max| json!(max))),
        ("mode", mode.map(|mode| json!(mode))),
        ("target_concurrency", args.target.map(|target| json!(target))),
        ("price_cap", args.price_cap.clone().map(Value::Number)),
        ("autoscale", args.autoscale.map(|switch| json!(matches!(switch, Switch::On)))),
    ];
    changes.extend(given.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
    changes
}

fn size(answer: &SizingAnswer, style: Style) -> String {
    if let Some(replicas) = answer.fixed {
        return format!(
            "{}  static: {}, as the configuration lists them; its size is changed there\n",
            clean(&answer.deployment),
            counted(replicas, "replica")
        );
    }
    let mut table = Grid::new(&["SETTING", ">VALUE", "FROM"]);
    for (key, setting) in &answer.sizing {
        let value = shown(key, &setting.value);
        let from = origin(key, setting);
        table.rows.push(vec![(clean(option(key)), None), (clean(&value), None), (clean(&from), None)]);
    }
    let warning = answer.warning.as_ref().map(|warning| format!("warning: {}\n", clean(warning)));
    let (name, unsaved) = (clean(&answer.deployment), not_saved(answer.unsaved.clone()));
    format!("{name}\n{}{}{unsaved}", table.render(style), warning.unwrap_or_default())
}

/// `key` as the option that sets it is called.
fn option(key: &str) -> &str {
    match key {
        "target_concurrency" => "target",
        "price_cap" => "price-cap",
        key => key,
    }
}

/// The value of `key` without quotes; `none` for one that is not there, dollars for a price.
pub(super) fn shown(key: &str, value: &Value) -> String {
    match value {
        Value::String(text) => clean(text),
        Value::Null => "none".to_owned(),
        Value::Bool(on) => if *on { "on" } else { "off" }.to_owned(),
        Value::Number(cap) if key == "price_cap" => match amount(&cap.to_string()) {
            Ok(Money(micros)) => Price(u64::try_from(micros).unwrap_or_default()).to_string(),
            Err(_) => cap.to_string(),
        },
        other => other.to_string(),
    }
}

/// Where the value of `key` comes from: `set by hand 2 m 4 s ago instead of 1`, `tuned on L4 3 d 1 h ago`, `configuration`, `default`.
pub(super) fn origin(key: &str, setting: &SizingValue) -> String {
    let ago = setting.age_s.map(|ago| format!(" {} ago", age(ago))).unwrap_or_default();
    let other = setting.file.as_ref().filter(|file| **file != setting.value);
    let usual = if setting.file_from.as_deref() == Some("default") { " by default" } else { "" };
    let instead = other.map(|file| format!(" instead of {}{usual}", shown(key, file))).unwrap_or_default();
    let bound = setting.in_force.as_ref().map(|value| format!("; {} is in force", shown(key, value)));
    let instead = instead + &bound.unwrap_or_default();
    match (setting.from.as_str(), &setting.on) {
        ("set", _) => format!("set by hand{ago}{instead}"),
        (from, Some(kind)) => format!("{from} on {kind}{ago}{instead}"),
        (from, None) => format!("{from}{ago}{instead}"),
    }
}

/// A setting that is set and unset at once.
fn at_odds(args: &ScaleArgs) -> Option<&'static str> {
    let is = |setting: &Setting| match setting {
        Setting::Min => args.min.is_some().then_some("min"),
        Setting::Max => args.max.is_some().then_some("max"),
        Setting::Mode => args.mode.is_some().then_some("mode"),
        Setting::Target => args.target.is_some().then_some("target"),
        Setting::Autoscale => args.autoscale.is_some().then_some("autoscale"),
        Setting::PriceCap => args.price_cap.is_some().then_some("price-cap"),
    };
    args.unset.iter().find_map(is)
}

/// A size.
fn replicas(text: &str) -> Result<u32, String> {
    whole(text, 0..=MAX_REPLICAS)
}

/// Requests for each replica to aim at.
fn requests(text: &str) -> Result<u32, String> {
    whole(text, 1..=MAX_TARGET)
}

/// A whole number within bounds. The error says what is allowed; which option and which text it was, the caller says.
pub(super) fn whole<T: FromStr + PartialOrd + Display>(
    text: &str,
    within: RangeInclusive<T>,
) -> Result<T, String> {
    let read = text.parse().ok().filter(|number| within.contains(number));
    read.ok_or_else(|| format!("it must be a whole number from {} to {}", within.start(), within.end()))
}

fn dollars(text: &str) -> Result<serde_json::Number, &'static str> {
    serde_json::from_str(text).map_err(|_| "must be an amount of dollars such as 2.50")
}

pub(super) fn not_saved(why: Option<String>) -> String {
    let told = |why: String| format!("not saved, a restart would forget it: {}\n", clean(&why));
    why.map(told).unwrap_or_default()
}

pub(super) fn print(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ScaleArgs,
    }

    #[test]
    fn options_become_changes_and_none_is_set_and_unset_at_once() {
        let line = "scale chat --min 2 --mode active --autoscale off --target 7 --unset max";
        let args = Line::parse_from(line.split(' ')).args;
        let expected =
            json!({"min": 2, "mode": "active", "autoscale": false, "target_concurrency": 7, "max": null});
        assert_eq!(Value::Object(changes(&args)), expected);
        assert!(changes(&Line::parse_from(["scale", "chat"]).args).is_empty());
        assert_eq!(at_odds(&args), None);
        let odd = Line::parse_from("scale chat --unset min --unset max --max 3".split(' ')).args;
        let told = AtOdds(at_odds(&odd).expect("max")).to_string();
        assert_eq!(told, "--unset max and --max are at odds; one of them must go");
    }

    #[test]
    fn a_number_that_is_none_is_told_with_its_option_and_what_is_allowed() {
        let told = |line: &str| Line::try_parse_from(line.split(' ')).map(drop).expect_err(line).to_string();
        for (line, parts) in [
            ("scale chat --min x", ["'x'", "--min", "a whole number from 0 to 32"]),
            ("scale chat --max 1.5", ["'1.5'", "--max", "a whole number from 0 to 32"]),
            ("scale chat --target 0", ["'0'", "--target", "a whole number from 1 to 100000"]),
        ] {
            parts.iter().for_each(|part| assert!(told(line).contains(part), "{}", told(line)));
        }
    }

    #[test]
    fn an_amount_is_checked_here_and_sent_exactly() {
        #[derive(Parser)]
        struct Credit {
            #[command(flatten)]
            args: CreditArgs,
        }
        let read = |amount: &str| Credit::try_parse_from(["credit", amount]).map(|line| line.args.amount);
        for (written, micros) in [
            ("2.5e-05", 25),
            ("1e-6", 1),
            ("1.5E+3", 1_500_000_000),
            ("-2e2", -200_000_000),
            ("2.50e1", 25_000_000),
        ] {
            assert_eq!(amount(written), Ok(Money(micros)), "{written}");
        }
        for bad in ["2.5e-07", "1e7", "1e999", "1e-21", "e3", "1e", "1.2.3e1", "1e1e1", "+-1e1"] {
            assert!(amount(bad).is_err(), "{bad}");
        }
        for (amount, body) in [
            ("25.50", r#"{"amount": 25.5}"#),
            ("+007", r#"{"amount": 7}"#),
            ("-0.000001", r#"{"amount": -0.000001}"#),
        ] {
            assert_eq!(top_up(read(amount).expect(amount).expect("an amount")), body);
        }
        for amount in ["abc", "0", "1e7", "1.0000001", "5}"] {
            let told = read(amount).map(drop).expect_err(amount).to_string();
            for part in [amount, "AMOUNT", "must be an amount of dollars, not 0 and up to"] {
                assert!(told.contains(part), "{told}");
            }
        }
    }

    #[test]
    fn a_fixed_fleet_is_told_in_a_sentence_and_a_warning_below_the_table() {
        let text = |answer: &str| size(&serde_json::from_str(answer).expect("the shape"), Style::PLAIN);
        let fixed = r#"{"deployment":"chat","sizing":{},"unsaved":null,"fixed":2}"#;
        assert_eq!(
            text(fixed),
            "chat  static: 2 replicas, as the configuration lists them; its size is changed there\n"
        );
        let warned = r#"{"deployment":"chat","sizing":{},"unsaved":null,"warning":"nothing can be started"}"#;
        assert!(text(warned).ends_with("\nwarning: nothing can be started\n"));
    }

    #[test]
    fn a_size_is_told_with_where_it_comes_from() {
        let answer = r#"{"deployment":"chat","sizing":{"max":{"value":4,"from":"default","age_s":null},
            "min":{"value":2,"from":"set","age_s":64.0,"file":1},"price_cap":{"value":2.5,"from":"set","age_s":9.0},
            "target_concurrency":{"value":50,"in_force":8,"from":"set","age_s":9.0}},"unsaved":"database or disk is full"}"#;
        let text = size(&serde_json::from_str(answer).expect("the shape"), Style::PLAIN);
        let expected = "chat\n  SETTING      VALUE  FROM\n  max              4  default\n  min              2  set by hand 1 m 4 s ago instead of 1\n\
            \x20 price-cap  $2.50/h  set by hand 9.0 s ago\n\
            \x20 target          50  set by hand 9.0 s ago; 8 is in force\n\
            not saved, a restart would forget it: database or disk is full\n";
        assert_eq!(text, expected);
    }
}
