// id: X-58
// name: A program that is too large to start
// group: compile
// priority: 1
// expect: compile_error, runtime_error, signaled, memory_limit
// control: none
// control-why: about the truth of the verdict: a failing exec is the program's fault
char huge[1UL << 47];

int main(void)
{
    *(volatile char *)huge = 1;
    return 0;
}
