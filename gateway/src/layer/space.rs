//! Memory for the body of a request while it comes: a small one lies in the heap, a large one in pages of its own.
//!
//! Pages go back to the system when the body goes. Pieces of the heap would not: the more of them are freed, the larger
//! the pieces that the system's allocator takes from its arenas, where they leave holes (C-072). Knows no budget and
//! reads no more than it is asked to.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use memmap2::{MmapMut, MmapOptions};
use tokio::io::{AsyncRead, ReadBuf};

use crate::http1::fill::poll_read_into;

/// Bodies from this size on, in bytes, lie in pages of their own.
const LARGE: usize = 64 << 10;
/// Pages for a body whose size is not known, in bytes; one that grows beyond them gets as many as the largest body may
/// take, which cost nothing before they are written to, and is copied for the last time.
const AT_FIRST: usize = 1 << 20;
/// Room for a read, in bytes, where the size of the body is not known.
const STEP: usize = 16 << 10;
/// The largest piece of pages that is kept for a later body, in bytes: to have it anew costs a fault for each page.
const KEPT_LARGEST: usize = 2 << 20;
/// What a thread keeps at most, in bytes, before it is told.
const KEPT_MAX: usize = 4 << 20;
/// How many pieces are looked at for one that fits.
const LOOKED_AT: usize = 64;
/// All cores together keep this part of what bodies may take.
const KEPT_PART: u64 = 8;
/// How long what nobody has needed is kept at least, and half of how long at most.
const QUIET: Duration = Duration::from_secs(5);

thread_local! {
    static KEPT: RefCell<Kept> = const { RefCell::new(Kept { pieces: VecDeque::new(), bytes: 0, fewest: 0, most: KEPT_MAX }) };
}

/// A body, as far as it has come.
#[derive(Debug)]
pub struct Space {
    place: Place,
    most: usize,
    lost: bool,
}

#[derive(Debug)]
enum Place {
    Heap(BytesMut),
    Pages(Pages),
}

impl Space {
    /// For a body of as many bytes as are announced, at most `most`.
    ///
    /// # Errors
    /// The system has no pages.
    pub fn new(announced: Option<u64>, most: u64) -> io::Result<Self> {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let size = announced.and_then(|size| usize::try_from(size).ok()).unwrap_or(0).min(most);
        let place = if size < LARGE {
            Place::Heap(BytesMut::with_capacity(size))
        } else {
            Place::Pages(Pages::of(size)?)
        };
        Ok(Self { place, most, lost: false })
    }

    /// For bytes that are thrown away.
    pub fn scrap() -> Self {
        Self { place: Place::Heap(BytesMut::new()), most: usize::MAX, lost: false }
    }

    /// Makes room for a read where there is none.
    ///
    /// # Errors
    /// The system has no pages.
    pub fn make_room(&mut self) -> io::Result<()> {
        let (len, room) = match &self.place {
            Place::Heap(bytes) => (bytes.len(), bytes.capacity() - bytes.len()),
            Place::Pages(pages) => (pages.len, pages.room()),
        };
        if room > 0 {
            return Ok(());
        }
        self.reserve(len.clamp(STEP, LARGE).min(self.most.saturating_sub(len)))
    }

    /// Adds bytes. Where the system has no memory for them, they are [lost](Self::has_lost).
    pub fn extend(&mut self, bytes: &[u8]) {
        if self.reserve(bytes.len()).is_err() {
            self.lost = true;
            return;
        }
        match &mut self.place {
            Place::Heap(heap) => heap.extend_from_slice(bytes),
            Place::Pages(pages) => pages.extend(bytes),
        }
    }

    /// Whether bytes were added that are not there.
    pub fn has_lost(&self) -> bool {
        self.lost
    }

    /// Reads once from a connection, at most `most` bytes, into the room that there is.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn poll_read<S: AsyncRead + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
        most: usize,
    ) -> Poll<io::Result<usize>> {
        match &mut self.place {
            Place::Heap(heap) => poll_read_into(stream, cx, heap, most),
            Place::Pages(pages) => pages.poll_read(stream, cx, most),
        }
    }

    /// Forgets what has come.
    pub fn clear(&mut self) {
        match &mut self.place {
            Place::Heap(heap) => heap.clear(),
            Place::Pages(pages) => pages.len = 0,
        }
    }

    /// What has come.
    pub fn freeze(self) -> Bytes {
        match self.place {
            Place::Heap(heap) => heap.freeze(),
            Place::Pages(pages) => Bytes::from_owner(pages),
        }
    }

    fn reserve(&mut self, more: usize) -> io::Result<()> {
        let (len, pages) = match &mut self.place {
            Place::Heap(heap) if heap.len() + more <= LARGE => {
                // By doubling, so that few bytes are copied.
                heap.reserve(more);
                return Ok(());
            }
            Place::Pages(pages) if pages.room() >= more => return Ok(()),
            Place::Heap(heap) => (heap.len(), &heap[..]),
            Place::Pages(pages) => (pages.len, Pages::as_ref(pages)),
        };
        let need = len.saturating_add(more);
        let size = if need <= AT_FIRST { AT_FIRST } else { self.most };
        if need > size {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let mut larger = Pages::anew(size)?;
        larger.extend(pages);
        self.place = Place::Pages(larger);
        Ok(())
    }
}

/// Pages, of which the first bytes are a body's.
#[derive(Debug)]
struct Pages {
    /// `None` only while it is dropped.
    map: Option<MmapMut>,
    len: usize,
}

impl Pages {
    /// For a body of `size` bytes: those of an earlier one, else new ones.
    fn of(size: usize) -> io::Result<Self> {
        match KEPT.with_borrow_mut(|kept| kept.take(size)) {
            Some(map) => Ok(Self { map: Some(map), len: 0 }),
            None => Self::anew(size),
        }
    }

    fn anew(size: usize) -> io::Result<Self> {
        // Not set aside: there may be far more address space than bytes.
        let map = MmapOptions::new().len(size).no_reserve_swap().map_anon()?;
        Ok(Self { map: Some(map), len: 0 })
    }

    fn room(&self) -> usize {
        self.map.as_ref().map_or(0, |map| map.len() - self.len)
    }

    /// The next `most` bytes of what is free, or less.
    fn free(&mut self, most: usize) -> &mut [u8] {
        let size = self.room().min(most);
        let free = self.map.as_mut().and_then(|map| map.get_mut(self.len..self.len + size));
        free.unwrap_or_default()
    }

    /// Adds bytes for which there is room.
    fn extend(&mut self, bytes: &[u8]) {
        self.free(bytes.len()).copy_from_slice(bytes);
        self.len += bytes.len();
    }

    fn poll_read<S: AsyncRead + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
        most: usize,
    ) -> Poll<io::Result<usize>> {
        let mut free = ReadBuf::new(self.free(most));
        ready!(Pin::new(stream).poll_read(cx, &mut free))?;
        let read = free.filled().len();
        self.len += read;
        Poll::Ready(Ok(read))
    }
}

impl AsRef<[u8]> for Pages {
    fn as_ref(&self) -> &[u8] {
        self.map.as_ref().and_then(|map| map.get(..self.len)).unwrap_or_default()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if let Some(map) = self.map.take()
            && map.len() <= KEPT_LARGEST
            && fits(self.len, map.len())
        {
            // Of a thread that ends, nothing is kept.
            let _ = KEPT.try_with(|kept| kept.borrow_mut().keep(map));
        }
    }
}

/// Whether a body of so many bytes may lie in `pages` bytes that were all written to: the rest of them is
/// counted nowhere.
fn fits(size: usize, pages: usize) -> bool {
    (size..=size + size / 8).contains(&pages)
}

/// Pages that no body has any more, the oldest first; the newest are taken first.
#[derive(Debug)]
struct Kept {
    pieces: VecDeque<MmapMut>,
    bytes: usize,
    /// How few they were since they were tidied.
    fewest: usize,
    /// Bytes that they may have.
    most: usize,
}

impl Kept {
    fn take(&mut self, size: usize) -> Option<MmapMut> {
        let mut newest = self.pieces.iter().enumerate().rev().take(LOOKED_AT);
        let (found, _) = newest.find(|(_, piece)| fits(size, piece.len()))?;
        let piece = self.pieces.remove(found)?;
        self.bytes -= piece.len();
        self.fewest = self.fewest.min(self.pieces.len());
        Some(piece)
    }

    fn keep(&mut self, piece: MmapMut) {
        self.bytes += piece.len();
        self.pieces.push_back(piece);
        while self.bytes > self.most {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(oldest) = self.pieces.pop_front() {
            self.bytes -= oldest.len();
        }
    }

    /// Gives back what was not needed since this was called before.
    fn tidy(&mut self) {
        for _ in 0..self.fewest.min(self.pieces.len()) {
            self.drop_oldest();
        }
        self.fewest = self.pieces.len();
    }
}

/// Lets this core, of so many `cores`, keep its share of an eighth of the `buffered` bytes that bodies may take, and gives
/// what was not needed for a while back to the system; for ever.
pub async fn sweep(buffered: u64, cores: usize) {
    let most = usize::try_from(buffered / KEPT_PART).unwrap_or(usize::MAX) / cores.max(1);
    KEPT.with_borrow_mut(|kept| kept.most = most);
    let mut tick = tokio::time::interval(QUIET);
    loop {
        tick.tick().await;
        KEPT.with_borrow_mut(Kept::tidy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(size: usize) -> Bytes {
        let mut space = Space::new(Some(size as u64), 64 << 20).expect("memory");
        space.extend(&vec![b'a'; size]);
        space.freeze()
    }

    #[test]
    fn c_072_pages_are_used_again_when_nobody_has_them_and_then_given_back() {
        let first = held(LARGE);
        let at = first.as_ptr();
        let other = held(LARGE);
        assert!(first.iter().all(|byte| *byte == b'a') && other.as_ptr() != at, "each has its own");
        let part = first.slice(10..20);
        drop(first);
        assert_ne!(held(LARGE).as_ptr(), at, "somebody has a part of it");
        drop(part);
        assert_eq!(held(LARGE).as_ptr(), at, "the newest");
        assert_ne!(held(LARGE / 5 * 4 - 1).as_ptr(), at, "too small a body for it lies in the heap");
        let bytes = || KEPT.with_borrow(|kept| kept.bytes);
        drop((0..20).map(|_| held(1 << 20)).collect::<Vec<_>>());
        assert_eq!(bytes(), KEPT_MAX);
        drop(held(KEPT_LARGEST + 1));
        assert_eq!(bytes(), KEPT_MAX, "too large to be kept");
        KEPT.with_borrow_mut(Kept::tidy);
        assert_eq!(bytes(), KEPT_MAX, "at one time there were none");
        drop(held(1 << 20));
        KEPT.with_borrow_mut(Kept::tidy);
        assert_eq!(bytes(), 1 << 20, "one was needed");
        KEPT.with_borrow_mut(Kept::tidy);
        assert_eq!(bytes(), 0);
    }

    #[test]
    fn c_072_pages_of_a_large_body_are_not_kept_for_a_much_smaller_one() {
        drop(held(400 << 10));
        KEPT.with_borrow_mut(|kept| {
            assert!(kept.take(300 << 10).is_none() && kept.take(401 << 10).is_none());
            assert!(kept.take(360 << 10).is_some());
        });
    }

    #[test]
    fn h4_a_body_of_unknown_size_keeps_its_bytes_as_it_grows() {
        let piece: Vec<u8> = (0..=250).collect();
        for most in [AT_FIRST + 10, 3 << 20] {
            let mut space = Space::new(None, most as u64).expect("memory");
            let mut sent = Vec::new();
            while sent.len() < most {
                let part = piece.get(..most - sent.len()).unwrap_or(&piece);
                space.make_room().expect("memory");
                space.extend(part);
                sent.extend_from_slice(part);
            }
            assert!(!space.has_lost());
            space.extend(&piece);
            assert!(space.has_lost(), "it may not be larger");
            assert_eq!(space.freeze(), sent);
        }
    }

    #[tokio::test]
    async fn h4_bytes_are_read_straight_into_either_place_and_no_more_than_asked_for() {
        for size in [100, LARGE] {
            let sent = vec![b'x'; size + 1];
            let (mut stream, mut space) =
                (&sent[..], Space::new(Some(size as u64), 1 << 20).expect("memory"));
            let mut read = 0;
            while read < size {
                let most = size - read;
                read +=
                    std::future::poll_fn(|cx| space.poll_read(&mut stream, cx, most)).await.expect("bytes");
            }
            assert_eq!((space.freeze(), stream.len()), (Bytes::from(vec![b'x'; size]), 1));
        }
    }
}
