//! A server of keys and values, a thread for each connection: `set KEY VALUE`, `get KEY`, a line each. It ends with its input.
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, RwLock};

type Store = Arc<RwLock<HashMap<String, Arc<str>>>>;

fn serve(stream: TcpStream, store: &Store) -> std::io::Result<()> {
    let mut to = stream.try_clone()?;
    for line in BufReader::new(stream).lines() {
        let line = line?;
        let mut words = line.splitn(3, ' ');
        let said = match (words.next(), words.next(), words.next()) {
            (Some("set"), Some(key), Some(value)) => {
                store.write().unwrap().insert(key.to_owned(), value.into());
                "ok".to_owned()
            }
            (Some("get"), Some(key), None) => {
                let found = store.read().unwrap().get(key).cloned();
                format!("{} {}", key, found.as_deref().unwrap_or("-"))
            }
            _ => "what?".to_owned(),
        };
        writeln!(to, "{said}")?;
    }
    Ok(())
}

fn main() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    println!("ready {}", listener.local_addr().unwrap().port());
    let store = Store::default();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let store = Arc::clone(&store);
            std::thread::spawn(move || serve(stream, &store));
        }
    });
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    println!("over");
}
