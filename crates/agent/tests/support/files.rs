//! Checkpoints as the frameworks write them, byte by byte, so that no test needs Python.

#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(clippy::unwrap_used, reason = "in tests a panic is the message")]

use std::fs;
use std::path::Path;

/// Paths and contents.
pub(crate) type Files = Vec<(String, Vec<u8>)>;

pub(crate) fn write(root: &Path, files: &Files) {
    for (path, content) in files {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

pub(crate) fn file(path: impl Into<String>, content: impl Into<Vec<u8>>) -> (String, Vec<u8>) {
    (path.into(), content.into())
}

/// A ZIP archive with stored members.
pub(crate) fn zip(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut directory = Vec::new();
    for (name, content) in members {
        let header_at = u32::try_from(out.len()).unwrap();
        let sizes = u32::try_from(content.len()).unwrap().to_le_bytes();
        let name_length = u16::try_from(name.len()).unwrap().to_le_bytes();
        out.extend(b"PK\x03\x04\x14\0\0\0\0\0\0\0\0\0\0\0\0\0");
        out.extend(sizes);
        out.extend(sizes);
        out.extend(name_length);
        out.extend([0, 0]);
        out.extend(name.as_bytes());
        out.extend(*content);
        directory.extend(b"PK\x01\x02\x14\0\x14\0\0\0\0\0\0\0\0\0\0\0\0\0");
        directory.extend(sizes);
        directory.extend(sizes);
        directory.extend(name_length);
        directory.extend([0; 12]);
        directory.extend(header_at.to_le_bytes());
        directory.extend(name.as_bytes());
    }
    let directory_at = u32::try_from(out.len()).unwrap();
    let count = u16::try_from(members.len()).unwrap().to_le_bytes();
    out.extend(&directory);
    out.extend(b"PK\x05\x06\0\0\0\0");
    out.extend(count);
    out.extend(count);
    out.extend(u32::try_from(directory.len()).unwrap().to_le_bytes());
    out.extend(directory_at.to_le_bytes());
    out.extend([0, 0]);
    out
}

/// `pickle.dumps({key: value, …}, protocol=2)` of small integers.
pub(crate) fn pickle(items: &[(&str, u8)]) -> Vec<u8> {
    let mut out = b"\x80\x02}q\x00(".to_vec();
    for (key, value) in items {
        out.push(b'X');
        out.extend(u32::try_from(key.len()).unwrap().to_le_bytes());
        out.extend(key.as_bytes());
        out.extend([b'K', *value]);
    }
    out.extend(b"u.");
    out
}

/// What torch.save writes of such a dictionary.
pub(crate) fn torch(items: &[(&str, u8)]) -> Vec<u8> {
    let pickled = pickle(items);
    zip(&[("archive/data.pkl", &pickled), ("archive/data/0", &[7; 64]), ("archive/version", b"3\n")])
}

pub(crate) fn safetensors(elements: usize) -> Vec<u8> {
    let bytes = elements * 4;
    let header = format!(r#"{{"w":{{"dtype":"F32","shape":[{elements}],"data_offsets":[0,{bytes}]}}}}"#);
    let mut out = (header.len() as u64).to_le_bytes().to_vec();
    out.extend(header.as_bytes());
    out.extend(vec![1; bytes]);
    out
}

pub(crate) fn huggingface(directory: &str, step: u32) -> Files {
    let index = r#"{"metadata":{},"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}}"#;
    vec![
        file(format!("{directory}/config.json"), "{}"),
        file(format!("{directory}/model-00001-of-00002.safetensors"), safetensors(5)),
        file(format!("{directory}/model-00002-of-00002.safetensors"), safetensors(9)),
        file(format!("{directory}/model.safetensors.index.json"), index),
        file(format!("{directory}/training_args.bin"), torch(&[])),
        file(format!("{directory}/optimizer.pt"), torch(&[("step", 1)])),
        file(
            format!("{directory}/trainer_state.json"),
            format!(r#"{{"epoch": 1.5, "global_step": {step}}}"#),
        ),
    ]
}

/// `.metadata` as a pickle with a record for each of two shards.
pub(crate) fn dcp(directory: &str) -> Files {
    let mut metadata = b"\x80\x02(".to_vec();
    for (shard, offset, length) in
        [("__0_0.distcp", 0_u8, 40_u8), ("__0_0.distcp", 40, 24), ("__1_0.distcp", 0, 30)]
    {
        metadata.extend(b"}(");
        for (key, value) in [("relative_path", None), ("offset", Some(offset)), ("length", Some(length))] {
            text(&mut metadata, key);
            match value {
                Some(number) => metadata.extend([b'K', number]),
                None => text(&mut metadata, shard),
            }
        }
        metadata.push(b'u');
    }
    metadata.extend(b"l.");
    vec![
        file(format!("{directory}/__0_0.distcp"), vec![1; 64]),
        file(format!("{directory}/__1_0.distcp"), vec![1; 30]),
        file(format!("{directory}/.metadata"), metadata),
    ]
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.push(b'X');
    out.extend(u32::try_from(text.len()).unwrap().to_le_bytes());
    out.extend(text.as_bytes());
}

/// A prefix with two shards, and the index in LevelDB's table format.
pub(crate) fn tensorflow(prefix: &str) -> Files {
    let entry = |shared: u8, key: &[u8], value: &[u8]| {
        let mut out = vec![shared, u8::try_from(key.len()).unwrap(), u8::try_from(value.len()).unwrap()];
        out.extend(key);
        out.extend(value);
        out
    };
    let end_of_block = |mut block: Vec<u8>| {
        block.extend(0_u32.to_le_bytes());
        block.extend(1_u32.to_le_bytes());
        block
    };
    let mut data = entry(0, b"", &[0x08, 2]);
    data.extend(entry(0, b"bias", &[0x08, 1, 0x18, 0, 0x20, 0, 0x28, 40]));
    data.extend(entry(1, b"weights", &[0x08, 1, 0x18, 1, 0x20, 4, 0x28, 20]));
    let data = end_of_block(data);
    let mut table = data.clone();
    table.extend([0; 5]);
    let index_at = u8::try_from(table.len()).unwrap();
    let index = end_of_block(entry(0, b"x", &[0, u8::try_from(data.len()).unwrap()]));
    table.extend(&index);
    table.extend([0; 5]);
    let mut footer = vec![0, 0, index_at, u8::try_from(index.len()).unwrap()];
    footer.resize(40, 0);
    footer.extend(0xdb47_7524_8b80_fb57_u64.to_le_bytes());
    table.extend(footer);
    vec![
        file(format!("{prefix}.data-00000-of-00002"), vec![1; 40]),
        file(format!("{prefix}.data-00001-of-00002"), vec![1; 24]),
        file(format!("{prefix}.index"), table),
    ]
}

pub(crate) fn orbax(directory: &str) -> Files {
    vec![
        file(format!("{directory}/default/_METADATA"), "{}"),
        file(format!("{directory}/default/manifest.ocdbt"), "manifest"),
        file(format!("{directory}/default/d/abc"), "data"),
        file(
            format!("{directory}/_CHECKPOINT_METADATA"),
            r#"{"item_handlers": {}, "commit_timestamp_nsecs": 5}"#,
        ),
        file(format!("{directory}/commit_success.txt"), "Checkpoint commit was successful"),
    ]
}

pub(crate) fn megatron(iteration: u32) -> Files {
    let directory = format!("iter_{iteration:07}");
    vec![
        file(format!("{directory}/mp_rank_00/model_optim_rng.pt"), torch(&[("iteration", 1)])),
        file("latest_checkpointed_iteration.txt", format!("{iteration}\n")),
    ]
}

pub(crate) fn deepspeed(step: u32) -> Files {
    vec![
        file(format!("global_step{step}/mp_rank_00_model_states.pt"), torch(&[])),
        file(format!("global_step{step}/zero_pp_rank_0_mp_rank_00_optim_states.pt"), torch(&[])),
        file("latest", format!("global_step{step}")),
    ]
}

/// `{"learner": {"a": [1.0, 2.0], "s": "text"}}` in UBJSON, with a typed array.
pub(crate) fn ubjson() -> Vec<u8> {
    let mut out = b"{L\0\0\0\0\0\0\0\x07learner{L\0\0\0\0\0\0\0\x01a[$d#L\0\0\0\0\0\0\0\x02".to_vec();
    out.extend(1.0_f32.to_be_bytes());
    out.extend(2.0_f32.to_be_bytes());
    out.extend(b"L\0\0\0\0\0\0\0\x01sSL\0\0\0\0\0\0\0\x04text}}");
    out
}

/// What examples/digits writes.
pub(crate) fn digits(epoch: u32, step: u32) -> Vec<u8> {
    format!(r#"{{"sha256": "ab", "state": {{"epoch": {epoch}, "step": {step}, "weights": [0.5, 1.5]}}}}"#)
        .into_bytes()
}

/// What transformers 5.22 leaves of a step, with torch 2.15.
pub(crate) fn transformers(directory: &str, step: u32) -> Files {
    let mut files = huggingface(directory, step);
    files.push(file(format!("{directory}/rng_state.pth"), torch(&[])));
    files.push(file(format!("{directory}/scheduler.pt"), torch(&[("last_epoch", 1)])));
    files
}

/// What Accelerate 1.15 leaves of a call of `save_state`: its pickles are archives of torch.
pub(crate) fn accelerate(directory: &str) -> Files {
    vec![
        file(format!("{directory}/model.safetensors"), safetensors(8)),
        file(format!("{directory}/optimizer.bin"), torch(&[("step", 1)])),
        file(format!("{directory}/scheduler.bin"), torch(&[("last_epoch", 1)])),
        file(format!("{directory}/random_states_0.pkl"), torch(&[("step", 1)])),
    ]
}

/// What Orbax 0.12 leaves of a step: `commit_success.txt` also where it renames.
pub(crate) fn orbax_0_12(directory: &str) -> Files {
    let manifest = || {
        let mut bytes = vec![0x0c, 0xdb, 0x3a, 0x2a];
        bytes.extend(40_u64.to_le_bytes());
        bytes.resize(40, 7);
        bytes
    };
    let metadata = r#"{"item_handlers": {"default": "StandardCheckpointHandler"}, "metrics": {}, "init_timestamp_nsecs": 5, "commit_timestamp_nsecs": 6}"#;
    vec![
        file(format!("{directory}/_CHECKPOINT_METADATA"), metadata),
        file(format!("{directory}/commit_success.txt"), "Checkpoint commit was successful"),
        file(format!("{directory}/default/_METADATA"), r#"{"use_ocdbt": true}"#),
        file(format!("{directory}/default/_sharding"), "{}"),
        file(format!("{directory}/default/array_metadatas/process_0"), "{}"),
        file(format!("{directory}/default/commit_success.txt"), "Checkpoint commit was successful"),
        file(format!("{directory}/default/d/c1089c9029cbe7f9fc186190bb073868"), "data"),
        file(format!("{directory}/default/manifest.ocdbt"), manifest()),
        file(format!("{directory}/default/ocdbt.process_0/d/1a87d942918a077030dadad042842b23"), "data"),
        file(format!("{directory}/default/ocdbt.process_0/manifest.ocdbt"), manifest()),
    ]
}

/// What TensorFlow 2.21 leaves of a SavedModel.
pub(crate) fn saved_model(directory: &str) -> Files {
    let mut files = tensorflow(&format!("{directory}/variables/variables"));
    // A version, and a graph of 200 bytes.
    let mut model = vec![0x08, 1, 0x12, 0xc8, 1];
    model.resize(5 + 200, 9);
    files.push(file(format!("{directory}/saved_model.pb"), model));
    files.push(file(format!("{directory}/fingerprint.pb"), vec![0x08, 1]));
    files
}

/// A model as LightGBM 4.7 saves it.
pub(crate) const LIGHTGBM: &str = "tree\nversion=v4\nnum_class=1\n\nTree=0\nnum_leaves=2\n\nend of trees\n\nparameters:\n\
                                   [boosting: gbdt]\nend of parameters\n\npandas_categorical:null\n";

/// `checkpoint` of `tf.train.CheckpointManager`, TensorFlow 2.21.
pub(crate) fn tensorflows_list(numbers: &[u32]) -> (String, Vec<u8>) {
    let newest = numbers.last().map(|number| format!("model_checkpoint_path: \"ckpt-{number}\"\n"));
    let all = numbers.iter().map(|number| format!("all_model_checkpoint_paths: \"ckpt-{number}\"\n"));
    let times =
        numbers.iter().map(|number| format!("all_model_checkpoint_timestamps: 179484906{number}.5\n"));
    let last = "last_preserved_timestamp: 1794849065.5\n".to_owned();
    file("checkpoint", newest.into_iter().chain(all).chain(times).chain([last]).collect::<String>())
}

/// What Lightning 2.6 saves, as far as it names the best: `{"epoch": …, "callbacks": {"best_model_path": …, "best_k_models": {…: tensor}}}`.
pub(crate) fn lightning(epoch: u8, best: &[&str]) -> Vec<u8> {
    let mut pickled = b"\x80\x02}q\x00(".to_vec();
    text(&mut pickled, "epoch");
    pickled.extend([b'K', epoch]);
    text(&mut pickled, "callbacks");
    pickled.extend(b"}(");
    text(&mut pickled, "best_model_path");
    text(&mut pickled, best[0]);
    text(&mut pickled, "best_k_models");
    pickled.extend(b"}(");
    for path in best {
        text(&mut pickled, path);
        pickled.push(b'(');
        text(&mut pickled, "storage");
        pickled.extend(b"tQ");
    }
    pickled.push(b'u');
    text(&mut pickled, "last_model_path");
    text(&mut pickled, "");
    pickled.extend(b"uu.");
    zip(&[("archive/data.pkl", &pickled), ("archive/data/0", &[7; 64]), ("archive/version", b"3\n")])
}
