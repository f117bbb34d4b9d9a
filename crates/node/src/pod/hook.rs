//! What a container wants to do before it is told to end (`lifecycle.preStop`).

use std::time::Duration;

use super::{Farewell, Happened, Task};
use crate::exec;
use crate::notices::Voice;

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
            let done = if let Some(action) = hook.exec {
                exec::succeeds(&shared.config.shim, &door, &action.command.unwrap_or_default()).await
            } else if let Some(action) = hook.sleep {
                tokio::time::sleep(Duration::from_secs(u64::try_from(action.seconds).unwrap_or_default()))
                    .await;
                Ok(())
            } else {
                Err("only exec and sleep are supported on this machine".to_owned())
            };
            if let Err(why) = done {
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
}
