//! Scenes of a picture book: a child holds its parent and a parent its children, both by Rc, so a scene that was shown stays.
//! Mended: a child knows its parent by Weak.

#[path = "dice.rs"]
mod dice;
use std::cell::RefCell;
use std::rc::{Rc, Weak};

struct Node {
    #[cfg(not(mended))]
    parent: RefCell<Option<Rc<Node>>>,
    #[cfg(mended)]
    parent: RefCell<Weak<Node>>,
    children: RefCell<Vec<Rc<Node>>>,
    paint: [f32; 238],
}

impl Node {
    fn lift(self: &Rc<Node>) -> f32 {
        #[cfg(not(mended))]
        let parent = self.parent.borrow().clone();
        #[cfg(mended)]
        let parent = self.parent.borrow().upgrade();
        self.paint[0] + parent.map_or(0.0, |parent| parent.lift())
    }
}

#[inline(never)]
fn add_node(parent: Option<&Rc<Node>>, place: f32, children: usize) -> Rc<Node> {
    let node = Rc::new(Node {
        parent: RefCell::new(Default::default()),
        children: RefCell::new(Vec::with_capacity(children)),
        paint: [place; 238],
    });
    if let Some(parent) = parent {
        #[cfg(not(mended))]
        node.parent.replace(Some(parent.clone()));
        #[cfg(mended)]
        node.parent.replace(Rc::downgrade(parent));
        parent.children.borrow_mut().push(node.clone());
    }
    node
}

fn show(seed: f32) -> f32 {
    let root = add_node(None, seed, 4);
    let mut sum = 0.0;
    for i in 0..4 {
        let group = add_node(Some(&root), i as f32, 6);
        for k in 0..6 {
            sum += add_node(Some(&group), k as f32, 0).lift();
        }
    }
    sum
}

fn main() {
    let pictures: Vec<u8> = (0..6 << 20).map(|i: usize| (i % 251) as u8).collect();
    let mut sum = 0.0f64;
    for chapter in 1..=16 {
        for page in 0..50 {
            sum += f64::from(show(page as f32)) + f64::from(pictures[page * 9000]);
        }
        dice::mark(&format!("chapter {chapter}"));
    }
    println!("{sum}");
}
