fn main() {
    print!("{}", serde_saphyr::to_string(&trainyard_api::crd::training_job()).unwrap());
}
