#include <bits/stdc++.h>
#include <filesystem>
namespace fs = std::filesystem;
int main()
{
    std::atomic<int> count{0};
    std::mutex mutex;
    std::condition_variable changed;
    bool ready = false;
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; i++)
        threads.emplace_back([&] { for (int k = 0; k < 1000; k++) count++; });
    for (auto &t : threads) t.join();
    std::thread waiter([&] { std::unique_lock lock(mutex); changed.wait(lock, [&] { return ready; }); count++; });
    { std::lock_guard lock(mutex); ready = true; }
    changed.notify_all();
    waiter.join();
    std::cout << count << " " << std::async(std::launch::async, [] { return 6 * 7; }).get() << "\n";
    fs::create_directories("a/b/c");
    std::ofstream("a/b/c/ü.txt") << "text";
    size_t files = 0;
    for (auto &e : fs::recursive_directory_iterator("a")) files += e.is_regular_file();
    std::cout << files << " " << fs::file_size("a/b/c/ü.txt") << " " << fs::exists("/etc/passwd") << "\n";
    fs::create_symlink("b", "a/link");
    std::cout << fs::read_symlink("a/link") << " " << fs::remove_all("a") << "\n";
    std::map<std::string, int> m{{"b", 2}, {"a", 1}};
    for (auto &[k, v] : m) std::cout << k << v << " ";
    std::regex re("(\\w+)@(\\w+)");
    std::smatch match;
    std::string text = "user@host";
    std::cout << std::regex_match(text, match, re) << match[2] << "\n";
    try { std::vector<int>().at(1); } catch (const std::out_of_range &) { std::cout << "range\n"; }
    std::cout << std::setprecision(12) << std::accumulate(m.begin(), m.end(), 0.5, [](double s, auto &p) { return s + p.second; }) << "\n";
    return 9;
}
