//! What deployments that are gone left running, over restarts: told, billed, and settled by an operator.

use super::*;
use crate::orphans::Orphanage;
use crate::provider::state::StateDir;

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
    let find = |names: &[DeploymentName], jobs| {
        Orphanage::find((&accounts, names, jobs), &state, &house, at(0)).left(&house, at(0))
    };
    assert_eq!(find(&[chat()], false), [], "it is there");
    state.runs(&chat(), "process").unwrap();
    assert_eq!(find(&[], false), [], "ended at the start");
    state.runs(&chat(), "slurm").unwrap();
    assert_eq!(find(&[], true), [], "another deployment on Slurm ends them");
    assert_eq!(find(&[], false).len(), 1);
    state.runs(&chat(), "exec").unwrap();
    assert_eq!(spent(0), 10_000 + 90_000, "from the kill on");

    let orphanage = Orphanage::find((&accounts, &[], true), &state, &house, at(0));
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
