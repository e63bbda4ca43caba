//! Each thing that can stand in the way gets its own words, and the offer of the built-in engine.

use std::ffi::OsString;
use std::fs;

use super::super::{Cause, Place, QuickstartError, prepare_in};
use super::{World, silent};

async fn fails(place: &Place, world: &World) -> Cause {
    explained(prepare_in(place, &world.pins(), &silent()).await.unwrap_err())
}

fn explained(error: QuickstartError) -> Cause {
    let text = error.to_string();
    assert!(text.contains("`tidegate quickstart --stand-in`"), "{text}");
    assert_eq!(text.lines().count(), 2, "{text}");
    error.cause
}

#[tokio::test]
async fn no_python() {
    let world = World::new();
    let cause = fails(&world.bare_place(), &world).await;
    assert!(matches!(cause, Cause::NoPython), "{cause}");
}

#[tokio::test]
async fn python_without_venv_names_debians_package() {
    let world = World::new();
    world.program("python3", "echo 3.11; echo ensurepip");
    let cause = fails(&world.bare_place(), &world).await;
    assert!(cause.to_string().ends_with("apt install python3.11-venv"), "{cause}");
}

#[tokio::test]
async fn python_that_is_too_old() {
    let world = World::new();
    world.program("python3", "echo 3.9; echo");
    let cause = fails(&world.bare_place(), &world).await;
    assert!(matches!(&cause, Cause::OldPython { found, .. } if found == "3.9"), "{cause}");
}

#[tokio::test]
async fn python_that_does_not_run() {
    let world = World::new();
    world.program("python3", "echo oh no >&2; exit 7");
    let cause = fails(&world.bare_place(), &world).await;
    assert!(matches!(&cause, Cause::BrokenPython { words, .. } if words == "oh no"), "{cause}");
}

#[tokio::test]
async fn no_network_shows_pips_own_words() {
    let world = World::new();
    // Port 1 is never given out by the kernel and needs root to listen on: nobody is there.
    let env = [
        ("PIP_NO_INDEX", "0"),
        ("PIP_FIND_LINKS", ""),
        ("PIP_INDEX_URL", "http://127.0.0.1:1/"),
        ("PIP_RETRIES", "1"),
    ];
    let env = env.map(|(name, value)| (OsString::from(name), OsString::from(value))).to_vec();
    let cause = fails(&Place { env, ..world.place() }, &world).await;
    assert!(matches!(&cause, Cause::Network { words, .. } if words.contains("refused")), "{cause}");
}

#[tokio::test]
async fn an_index_without_the_package_shows_pips_own_words() {
    let world = World::new();
    let pins = world.pins();
    fs::remove_file(world.index().join("tideengine-1.0-py3-none-any.whl")).unwrap();
    let cause = explained(prepare_in(&world.place(), &pins, &silent()).await.unwrap_err());
    let wanted = "Fetching tideengine 1.0 failed: No matching distribution found for tideengine==1.0";
    assert!(cause.to_string().starts_with(wanted), "{cause}");
}

#[tokio::test]
async fn a_wheel_with_another_hash_is_refused_and_the_next_start_recovers() {
    let world = World::new();
    let mut pins = world.pins();
    pins.engine.sha256 = vec!["0".repeat(64)];
    let cause = explained(prepare_in(&world.place(), &pins, &silent()).await.unwrap_err());
    let right = world.pins().engine.sha256.join("");
    let told = |expected: &str, got: &str| expected == "0".repeat(64) && got == right;
    assert!(matches!(&cause, Cause::Mismatch { expected, got, .. } if told(expected, got)), "{cause}");
    let kept = super::files(&world.cache());
    assert!(!kept.iter().any(|name| name.ends_with(".whl") || name.ends_with(".seal")), "{kept:?}");
    prepare_in(&world.place(), &world.pins(), &silent()).await.unwrap();
}

#[tokio::test]
async fn a_model_with_another_hash_or_size_never_gets_its_name() {
    let world = World::new();
    let mut other_hash = world.pins();
    other_hash.model.sha256 = "0".repeat(64);
    let mut other_size = world.pins();
    other_size.model.bytes += 1;
    for pins in [other_hash, other_size] {
        let cause = explained(prepare_in(&world.place(), &pins, &silent()).await.unwrap_err());
        assert!(matches!(&cause, Cause::Mismatch { what, .. } if what == "tide.gguf"), "{cause}");
        assert!(!world.model().exists());
    }
}

#[tokio::test]
async fn a_full_disk_is_told_as_such() {
    let world = World::new();
    // What the system's Python says when a write fails with ENOSPC.
    let probe = "case \"$2\" in -c) echo 3.11; echo;; *) echo 'OSError: [Errno 28] No space left on device' >&2; exit 1;; esac";
    world.program("python3", probe);
    let cause = fails(&world.bare_place(), &world).await;
    assert!(matches!(&cause, Cause::Full { dir, .. } if *dir == world.cache()), "{cause}");
}

#[tokio::test]
async fn a_cache_folder_that_cannot_be_made() {
    let world = World::new();
    fs::write(world.dir.join("file"), "").unwrap();
    let place = Place { cache: world.dir.join("file/cache"), ..world.place() };
    let cause = fails(&place, &world).await;
    assert!(matches!(&cause, Cause::Io { doing: "create", .. }), "{cause}");
}
