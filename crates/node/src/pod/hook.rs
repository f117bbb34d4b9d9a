//! What a container wants to do when it has been started (`lifecycle.postStart`) and before it is told to end (`preStop`).

use std::time::Duration;

use k8s_openapi::api::core::v1::LifecycleHandler;
use tokio::time::Instant;

use super::{Farewell, Happened, Task};
use crate::exec;
use crate::notices::Voice;
use crate::shared::{Door, Shared};

impl Task {
    /// Starts the hook of a container, if it has one that can be run here.
    pub(super) fn run_hook(&mut self, index: usize) {
        let hook = self.spec(index).and_then(|container| container.lifecycle?.pre_stop);
        let (Some(hook), Some(run)) = (hook, &mut self.runs[index]) else { return };
        let number = self.stories[index].restarts;
        let (happened, shared, pod) = (self.happened.0.clone(), self.shared.clone(), self.pod.clone());
        let door = run.door.clone();
        run.farewell = Farewell::Hook;
        // It has as long as the pod has to end; then the container is killed, and nobody waits for the hook any more.
        tokio::spawn(async move {
            if let Err(why) = carry_out(hook, &shared, &door).await {
                shared.notices.warning(
                    &pod,
                    Voice::Kubelet,
                    "FailedPreStopHook",
                    format!("PreStopHook failed: {why}"),
                );
            }
            let _ = happened.send(Happened::Prepared { index, run: number });
        });
    }

    /// Starts what a container wants to do when it has been started, if anything.
    pub(super) fn greet(&self, index: usize) {
        let hook = self.spec(index).and_then(|container| container.lifecycle?.post_start);
        let (Some(hook), Some(run)) = (hook, &self.runs[index]) else { return };
        let number = self.stories[index].restarts;
        let (happened, shared, door) = (self.happened.0.clone(), self.shared.clone(), run.door.clone());
        tokio::spawn(async move {
            if let Err(why) = carry_out(hook, &shared, &door).await {
                let _ = happened.send(Happened::NotGreeted { index, run: number, why });
            }
        });
    }

    /// A container whose `postStart` hook failed is ended, as a kubelet does.
    pub(super) fn not_greeted(&mut self, index: usize, why: &str) {
        if self.runs[index].is_none() {
            return;
        }
        let message = format!("PostStartHook failed: {why}");
        self.shared.notices.warning(&self.pod, Voice::Kubelet, "FailedPostStartHook", message);
        let message = format!("Container {} failed its postStart hook", self.stories[index].name);
        self.shared.notices.normal(&self.pod, Voice::Kubelet, "Killing", message);
        self.kill.push((index, Instant::now() + self.grace()));
    }
}

async fn carry_out(hook: LifecycleHandler, shared: &Shared, door: &Door) -> Result<(), String> {
    if let Some(action) = hook.exec {
        return exec::succeeds(&shared.config.shim, door, &action.command.unwrap_or_default()).await;
    }
    let Some(action) = hook.sleep else {
        return Err("only exec and sleep are supported on this machine".to_owned());
    };
    tokio::time::sleep(Duration::from_secs(u64::try_from(action.seconds).unwrap_or_default())).await;
    Ok(())
}
