fn main() {
    let b = trainyard_testcluster::Binaries::ensure(&mut |l| println!("{l}")).unwrap();
    println!("{}", b.path("kubectl").display());
}
