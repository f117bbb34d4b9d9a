//! PyTorch: `RANK`, `WORLD_SIZE`, `MASTER_ADDR`, `MASTER_PORT` for programs that call
//! `init_process_group` themselves (they get these in any case), and `PET_*` for torchrun, which reads each of its flags from
//! such a variable. torchrun then sets its own ranks for the processes that it starts.

use k8s_openapi::api::core::v1::EnvVar;

use super::{Contract, words};
use crate::build::{Place, value};

pub(super) struct Pytorch;

impl Contract for Pytorch {
    fn rendezvous(&self, place: &Place<'_>) -> Vec<EnvVar> {
        let Some(rank) = place.rank else { return Vec::new() };
        vec![
            value("PET_NNODES", place.world_size),
            value("PET_NODE_RANK", rank),
            value("PET_MASTER_ADDR", &place.master_address),
            value("PET_MASTER_PORT", place.master_port),
        ]
    }

    fn launch(&self, place: &Place<'_>) -> Vec<EnvVar> {
        if place.rank.is_none() {
            return Vec::new();
        }
        vec![value("PET_NPROC_PER_NODE", place.procs)]
    }

    fn recipe_command(&self) -> Vec<String> {
        words(&["python", "-m", "torch.distributed.run"])
    }
}
