//! What deployments that are gone left running, over restarts: told, billed, and settled by an operator.

use super::*;
use crate::orphans::Orphanage;
use crate::provider::slurm::Place;
use crate::provider::slurm::whose::Whose;
use crate::provider::state::StateDir;

/// Where the deployment of this name has its jobs.
fn place(name: &str, cluster: &str, user: Option<&str>) -> (DeploymentName, Place) {
    let whose = user.map(|name| Whose::Name(name.to_owned()));
    (DeploymentName::new(name), Place { cluster: cluster.to_owned(), whose })
}

/// A run that saw two replicas and was killed at second 105 of the boot.
async fn killed_run(dir: &Path) {
    let (store, kept) = open(dir, 100);
    let house = House::kept(credit(1_000_000), store.clone(), kept, &[chat()]);
    house.open(&chat(), Price::FREE, 0, at(0));
    for second in [0, 5] {
        house.with_budget(at(second), |budget, paid| {
            let fleet = [replica(1), replica(2)];
            budget.see(&chat(), &fleet, false, Moment { now: at(second), paid })
        });
        house.keep(&chat(), at(second));
    }
    store.close().await;
}

#[tokio::test]
async fn m2_replicas_of_a_deployment_that_is_gone_are_told_and_billed_until_they_are_settled() {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::open(&dir.path().join("state")).unwrap();
    let note = state.path().join("chat/provider");
    fs::create_dir(state.path().join("chat")).unwrap();
    state.runs(&chat(), "exec").unwrap();
    killed_run(dir.path()).await;

    let (store, kept) = open(dir.path(), 150);
    let accounts = kept.accounts.clone();
    let house = House::kept(credit(1_000_000), store.clone(), kept, &[]);
    let spent = |second| 1_000_000 - house.credit(at(second)).unwrap().left.0;
    let other = [place("other", "unix:/a", Some("u1"))];
    let find = |names: &[DeploymentName], jobs: &[(DeploymentName, Place)]| {
        Orphanage::find((&accounts, names, jobs), &state, &house, at(0)).left(&house, at(0))
    };
    assert_eq!(find(&[chat()], &[]), [], "it is there");
    state.runs(&chat(), "process").unwrap();
    assert_eq!(find(&[], &[]), [], "ended at the start");
    state.runs(&chat(), "slurm").unwrap();
    assert_eq!(find(&[], &[]), [], "no record tells of a job");
    state.runs(&chat(), "exec").unwrap();
    assert_eq!(spent(0), 10_000, "none of them is billed");

    let orphanage = Orphanage::find((&accounts, &[], &other), &state, &house, at(0));
    assert_eq!(spent(0), 10_000 + 90_000, "from the kill on");
    let told = orphanage.left(&house, at(8))[0].sentence();
    let settle = format!("stop them by hand and then run `rm {}`", note.display());
    let cost = "counts $7.20/h for them until then: chat has cost $0.12 in all so far";
    for word in ["chat-1, chat-2 (exec) were left running", cost, &settle] {
        assert!(told.contains(word), "{told}");
    }
    orphanage.settle(&house, at(8));
    assert_eq!((orphanage.left(&house, at(10)).len(), spent(10)), (1, 120_000), "they run on");
    fs::remove_file(&note).unwrap();
    orphanage.settle(&house, at(10));
    assert_eq!((orphanage.left(&house, at(90)), spent(90)), (Vec::new(), 120_000));
    store.close().await;

    let (store, kept) = open(dir.path(), 900);
    assert_eq!(kept.accounts[0].spent.running().count(), 0, "and that is on record");
    store.close().await;
}

#[tokio::test]
async fn m2_c005_jobs_of_a_deployment_that_left_a_cluster_are_all_told_with_where_and_what_settles_them() {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::open(&dir.path().join("state")).unwrap();
    let folder = state.path().join("chat");
    fs::create_dir(&folder).unwrap();
    state.runs(&chat(), "slurm").unwrap();
    let record =
        r#"{"cluster": "unix:/a", "whose": {"name": "u1"}, "owner": "nonce", "replicas": [1, 2, 3]}"#;
    fs::write(folder.join("jobs-1"), record).unwrap();
    killed_run(dir.path()).await;
    let (store, kept) = open(dir.path(), 150);
    let accounts = kept.accounts.clone();
    let house = House::kept(credit(1_000_000), store.clone(), kept, &[]);
    let on = |name: &str, cluster: &str| place(name, cluster, Some("u1"));
    let find = |accounts: &[KeptAccount], names: &[DeploymentName], clusters: &[(DeploymentName, Place)]| {
        Orphanage::find((accounts, names, clusters), &state, &house, at(0))
    };
    let told = |accounts: &[KeptAccount], names: &[DeploymentName], clusters: &[(DeploymentName, Place)]| {
        let left = find(accounts, names, clusters).left(&house, at(0));
        left.iter().map(|one| one.sentence()).collect::<Vec<_>>().join("; ")
    };
    assert_eq!(told(&accounts, &[], &[on("other", "unix:/a")]), "", "the other ends them");
    assert_eq!(told(&accounts, &[chat()], &[on("chat", "unix:/a")]), "", "it is there");
    for clusters in [vec![], vec![on("other", "unix:/b")]] {
        let told = told(&accounts, &[], &clusters);
        let settle =
            "cancel all its jobs there with `squeue -h -o '%i %k' | grep -F 'owner=nonce deployment=chat '";
        for word in [
            "chat-1, chat-2, chat-3 (slurm on unix:/a, as user u1) were left there",
            "counts $7.20/h",
            settle,
        ] {
            assert!(told.contains(word), "{told}");
        }
    }
    let pending = told(&[], &[], &[]);
    assert!(
        pending.contains("chat-3 (slurm on unix:/a, as user u1)") && !pending.contains("counts"),
        "{pending}"
    );
    let moved = told(&accounts, &[chat()], &[on("chat", "unix:/b"), on("other", "unix:/a")]);
    assert!(
        moved.contains("chat-3 (slurm on unix:/a, as user u1)") && moved.contains("chat/jobs-1"),
        "{moved}"
    );
    for (names, places, is_told) in [
        (vec![], place("other", "unix:/a", Some("u2")), true),
        (vec![], place("other", "unix:/a", None), true),
        (vec![chat()], place("chat", "unix:/a", Some("u2")), true),
        (vec![chat()], place("chat", "unix:/a", None), false),
    ] {
        let told = told(&accounts, &names, std::slice::from_ref(&places));
        assert_eq!(told.contains("chat-3 (slurm on"), is_told, "{places:?}: {told}");
    }
    let orphanage = find(&accounts, &[], &[]);
    fs::remove_file(folder.join("jobs-1")).unwrap();
    orphanage.settle(&house, at(1));
    assert_eq!(orphanage.left(&house, at(1)), []);
    store.close().await;
}

#[tokio::test]
async fn m2_c005_jobs_on_each_cluster_are_settled_by_their_own_file_and_by_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::open(&dir.path().join("state")).unwrap();
    let folder = state.path().join("chat");
    fs::create_dir(&folder).unwrap();
    state.runs(&chat(), "slurm").unwrap();
    for (file, cluster, id) in [("jobs-1", "unix:/a", 1), ("jobs-2", "unix:/b", 2)] {
        let record = format!(
            r#"{{"cluster": "{cluster}", "whose": {{"name": "u1"}}, "owner": "nonce", "replicas": [{id}]}}"#
        );
        fs::write(folder.join(file), record).unwrap();
    }
    killed_run(dir.path()).await;
    let (store, kept) = open(dir.path(), 150);
    let accounts = kept.accounts.clone();
    let house = House::kept(credit(1_000_000), store.clone(), kept, &[]);
    let find = || Orphanage::find((&accounts, &[], &[]), &state, &house, at(0));
    let names = |orphanage: &Orphanage| {
        orphanage.left(&house, at(1)).iter().flat_map(|one| one.names()).collect::<Vec<_>>()
    };
    fs::remove_file(folder.join("provider")).unwrap();
    let orphanage = find();
    assert_eq!(names(&orphanage), ["chat-1", "chat-2"], "that file tells of no jobs");
    for (one, file) in orphanage.left(&house, at(0)).iter().zip(["jobs-1", "jobs-2"]) {
        let rm = format!("then run `rm {}`", folder.join(file).display());
        assert!(one.sentence().ends_with(&rm), "{}", one.sentence());
    }
    fs::remove_file(folder.join("jobs-1")).unwrap();
    orphanage.settle(&house, at(1));
    assert_eq!((names(&orphanage), folder.join("jobs-2").exists()), (vec!["chat-2".to_owned()], true));
    let spent = |second| house.credit(at(second)).unwrap().left.0;
    assert_eq!(spent(1) - spent(11), 10_000, "and is billed on");
    assert_eq!(names(&find()), ["chat-2"], "after a restart too");
    store.close().await;
}

#[tokio::test]
async fn m2_c005_replicas_beside_the_jobs_of_an_earlier_record_are_told_and_each_is_billed_where_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::open(&dir.path().join("state")).unwrap();
    let folder = state.path().join("chat");
    fs::create_dir(&folder).unwrap();
    let record = |file: &str, cluster: &str, id: u32| {
        let record = format!(
            r#"{{"cluster": "{cluster}", "whose": {{"name": "u1"}}, "owner": "nonce", "replicas": [{id}]}}"#
        );
        fs::write(folder.join(file), record).unwrap();
    };
    killed_run(dir.path()).await;
    let rate = |second: u32, kind: &str| {
        let (store, kept) = open(dir.path(), 150);
        let accounts = kept.accounts.clone();
        let house = House::kept(credit(1_000_000), store.clone(), kept, &[]);
        state.runs(&chat(), kind).unwrap();
        let left = Orphanage::find((&accounts, &[], &[]), &state, &house, at(0)).left(&house, at(0));
        let told: Vec<_> =
            left.iter().map(|one| (one.names().join(" "), one.kind.clone(), one.rate.0)).collect();
        let spent = |second| house.credit(at(second)).unwrap().left.0;
        (told, spent(0) - spent(second), store)
    };
    let one = |names: &str, kind: &str, rate: u64| (names.to_owned(), kind.to_owned(), rate);
    record("jobs-1", "unix:/a", 3);
    let (told, spent, store) = rate(10, "exec");
    assert_eq!(told, [one("chat-3", "slurm", 0), one("chat-1 chat-2", "exec", 7_200_000)]);
    assert_eq!(spent, 20_000);
    store.close().await;

    for (file, id) in [("jobs-1", 1), ("jobs-2", 2)] {
        record(file, "unix:/a", id);
    }
    let (told, spent, store) = rate(10, "slurm");
    assert_eq!(told, [one("chat-1", "slurm", 3_600_000), one("chat-2", "slurm", 3_600_000)]);
    assert_eq!(spent, 20_000);
    store.close().await;

    fs::remove_file(folder.join("jobs-2")).unwrap();
    let (told, spent, store) = rate(10, "slurm");
    assert_eq!(told, [one("chat-1", "slurm", 3_600_000)]);
    assert_eq!(spent, 10_000, "no record tells of the other one: its job is gone");
    store.close().await;
}
