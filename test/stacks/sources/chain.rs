// Spins in leaf, below a trait method and a generic function.
use std::hint::black_box;
use std::io::Write;

trait Shape {
    fn area(&self, n: u64) -> u64;
}

struct Square(u64);

#[inline(never)]
fn leaf(n: u64) -> u64 {
    let mut sum = 0u64;
    for i in 0..n {
        sum = black_box(sum.wrapping_add(i * n));
    }
    sum
}

impl Shape for Square {
    #[inline(never)]
    fn area(&self, n: u64) -> u64 {
        black_box(leaf(n)).wrapping_add(self.0)
    }
}

#[inline(never)]
fn measure<T: Shape + ?Sized>(s: &T, n: u64) -> u64 {
    black_box(s.area(n)).wrapping_add(1)
}

fn main() {
    println!("ready");
    std::io::stdout().flush().unwrap();
    let s: Box<dyn Shape> = black_box(Box::new(Square(1)));
    loop {
        black_box(measure(&*s, 10_000_000));
    }
}
