"""Widgets of each frame register for events of the window, and are not unregistered when the frame ends: the window keeps them.
Mended: they are."""
from marks import MENDED, mark


class Widget:
    def __init__(self, frame, number):
        self.frame = frame
        self.title = f"widget {number} of frame {frame}, with a title of some length"
        self.points = [(frame, number), (number, frame), (frame + 1, number + 1)]

    def on_resize(self, width, height):
        return self.frame + width


class Window:
    def __init__(self):
        self.listeners = []

    def add_listener(self, listener):
        self.listeners.append(listener)


window = Window()
total = 0
for frame in range(1, 401):
    mark(f"frame {frame} begin")
    widgets = [Widget(frame, number) for number in range(30)]
    for widget in widgets:
        window.add_listener(widget.on_resize)
    total += sum(listener(100, 200) for listener in window.listeners[-30:])
    if MENDED:
        del window.listeners[-30:]
    del widgets, widget
    mark(f"frame {frame} end")
mark("drawn")
print(total)
