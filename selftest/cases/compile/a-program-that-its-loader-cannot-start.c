// id: X-57
// name: A program that its loader cannot start
// group: compile
// priority: 1
// expect: compile_error, runtime_error, signaled, memory_limit
// control: none
// control-why: about the truth of the verdict: failing to start is the program's fault
static __thread char huge[1UL << 45] __attribute__((used)); /* no room for the thread */
const char loader[] __attribute__((section(".interp"), used)) = "/box/none";

int main(void)
{
    return 0;
}
