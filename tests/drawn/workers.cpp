// Threads that hand each other work through futures and queues; not optimized, so that every call is a frame.
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

class Queue {
    std::mutex lock;
    std::condition_variable ready;
    std::deque<std::function<void()>> work;
    bool closed = false;

public:
    void put(std::function<void()> one)
    {
        std::lock_guard<std::mutex> held(lock);
        work.push_back(std::move(one));
        ready.notify_one();
    }
    void close()
    {
        std::lock_guard<std::mutex> held(lock);
        closed = true;
        ready.notify_all();
    }
    bool run_one()
    {
        std::unique_lock<std::mutex> held(lock);
        ready.wait(held, [this] { return closed || !work.empty(); });
        if (work.empty())
            return false;
        auto one = std::move(work.front());
        work.pop_front();
        held.unlock();
        one();
        return true;
    }
};

static std::mutex keeping;
static std::vector<std::unique_ptr<std::string>> *kept;

static void keep(int i)
{
    auto made = std::make_unique<std::string>(size_t(100 + i % 50), 'k');
    std::lock_guard<std::mutex> held(keeping);
    kept->push_back(std::move(made));
}

int main()
{
    kept = new std::vector<std::unique_ptr<std::string>>;
    Queue queue;
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; t++)
        threads.emplace_back([&queue] { while (queue.run_one()) {} });
    for (int i = 0; i < 500; i++) {
        std::string text(60, char('a' + i % 20));
        queue.put([i, text] { keep(i + int(text.size())); });
    }
    auto later = std::async(std::launch::async, [] { for (int i = 0; i < 200; i++) keep(i); });
    later.get();
    queue.close();
    for (auto &thread : threads)
        thread.join();
    return 0;
}
