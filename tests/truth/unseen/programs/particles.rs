//! A control: particles are born and die as chance has it, as many as die. Places are taken again as soon as they are free, and
//! the number that lives stays the same.

#[path = "dice.rs"]
mod dice;
use dice::Dice;

struct Particle {
    place: [f64; 3],
    speed: [f64; 3],
    trail: [f32; 30],
}

fn born(dice: &mut Dice) -> Box<Particle> {
    let mut any = || dice.roll(1000) as f64 / 100.0;
    Box::new(Particle { place: [any(), any(), any()], speed: [any(), any(), any()], trail: [0.0; 30] })
}

fn main() {
    let mut dice = Dice(6);
    let mut cloud: Vec<Box<Particle>> = Vec::with_capacity(60_000);
    for _ in 0..60_000 {
        cloud.push(born(&mut dice));
    }
    for step in 0..25 {
        for particle in &mut cloud {
            for axis in 0..3 {
                particle.place[axis] += particle.speed[axis] * 0.01;
            }
            particle.trail[step] = particle.place[0] as f32;
        }
        for _ in 0..1500 {
            let gone = dice.roll(60_000) as usize;
            cloud[gone] = born(&mut dice);
        }
    }
    println!("{:.3}", cloud.iter().map(|one| one.place[1] + f64::from(one.trail[7])).sum::<f64>());
}
