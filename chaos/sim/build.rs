//! Libraries look the random source up by name in the running program, so its names have to be visible there.

fn main() {
    println!("cargo:rustc-link-arg=-rdynamic");
}
