// id: X-56
// name: Assembler bomb
// group: compile
// priority: 1
// expect: compile_error
// control: none
// control-why: without the compile limits it would only eat the outer ones
__asm__(".rept 400000000\n.quad 1\n.endr\n");
__asm__(".fill 0x7fffffff, 8, 1\n");

int main(void)
{
    return 0;
}
