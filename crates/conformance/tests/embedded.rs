//! The suite on Trainyard's own API server, without a socket.

use trainyard_apiserver::ApiServer;
use trainyard_conformance::{HISTORY, Target};

fn main() {
    let start = || async {
        match ApiServer::builder().history(HISTORY).build() {
            Ok(server) => Target::new(server.client("default")),
            Err(error) => panic!("the server did not start: {error}"),
        }
    };
    trainyard_conformance::run(start, true)
}
