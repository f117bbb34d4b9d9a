# The operator's image: one static binary and nothing else.
#
#   docker build -t trainingjob-operator:latest .
#
# Each architecture is built by its own toolchain, so this file is the same for amd64 and arm64:
#
#   docker buildx build --platform linux/amd64,linux/arm64 -t registry/name:tag --push .

# Rust on Alpine builds for musl, and links statically by default.
ARG RUST=1.95

# 1. What decides which dependencies there are: manifests and lock file, with empty programs in place of ours. The copy
#    below is taken from the cache as long as these files stay the same, whatever happens to the sources.
FROM rust:${RUST}-alpine AS manifests
WORKDIR /src
COPY . .
RUN find . -type f ! -name Cargo.toml ! -name Cargo.lock ! -path './.cargo/*' -delete \
 && for manifest in crates/*/Cargo.toml xtask/Cargo.toml; do \
        src="$(dirname "$manifest")/src"; \
        mkdir -p "$src"; \
        : > "$src/lib.rs"; \
        echo 'fn main() {}' > "$src/main.rs"; \
    done \
 && find . -type d -empty -delete

# 2. The dependencies, which is most of the work, then the program.
FROM rust:${RUST}-alpine AS build
WORKDIR /src
COPY --from=manifests /src .
RUN cargo build --release --locked -p trainyard
# The stand-ins go, or cargo would find a main.rs in crates that have none; and cargo goes by time stamps, by which our
# sources may be older than what was just built from the stand-ins.
RUN rm -r crates xtask
COPY . .
RUN find crates xtask -name '*.rs' -exec touch {} + \
 && cargo build --release --locked -p trainyard

# 3. The image. Certificates are for clusters whose API server has a public one; inside a cluster they are not needed.
FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /src/LICENSE /LICENSE
COPY --from=build /src/target/release/trainyard /trainyard
USER 1000:1000
EXPOSE 8080
ENTRYPOINT ["/trainyard"]
CMD ["operator"]
