// id: O-51b
// name: Giant object, C++
// group: compile
// priority: 2
// expect: compile_error
// control: none
// control-why: without the compile limits it would only eat the outer ones
#include <array>

std::array<char, (1ull << 31)> a = {1};

int main()
{
    return a[5];
}
