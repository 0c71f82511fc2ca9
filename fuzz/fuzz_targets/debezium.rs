//! See `alluvium::fuzz::debezium`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| alluvium::fuzz::debezium(bytes).unwrap_or_else(|found| panic!("{found}")));
