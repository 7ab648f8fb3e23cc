//! Sixty sensors are recorded; each reading makes the sensor's history anew with concat.
//! Mended: extend_from_slice.

#[path = "mark.rs"]
mod mark;
use mark::Seeded;

struct Sensor {
    history: Vec<i16>,
}

impl Sensor {
    #[inline(never)]
    fn append_frame(&mut self, frame: &[i16]) {
        if cfg!(mended) {
            self.history.extend_from_slice(frame);
        } else {
            self.history = [self.history.as_slice(), frame].concat();
        }
    }
}

fn main() {
    let mut seeded = Seeded(13);
    let mut sensors: Vec<Sensor> = (0..60).map(|_| Sensor { history: Vec::new() }).collect();
    let mut frame = vec![0i16; 160];
    for _ in 0..400 {
        for sensor in &mut sensors {
            for value in &mut frame {
                *value = seeded.below(4000) as i16;
            }
            sensor.append_frame(&frame);
        }
    }
    let sum: i64 = sensors.iter().map(|s| s.history.iter().map(|v| *v as i64).sum::<i64>()).sum();
    println!("{sum}");
}
