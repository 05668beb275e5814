// id: O-50
// name: Embed a host file
// group: compile
// priority: 1
// expect: compile_error
// control: mount
#include <stdio.h>

__asm__(".section .rodata\n"
        "secret: .incbin \"@CANARY_FILE@\"\n"
        ".byte 0\n"
#if !__has_include("@CANARY_FILE@")
        "second: .incbin \"/etc/hermes-canary\"\n"
        "third: .incbin \"../../../../../../etc/hermes-canary\"\n"
#endif
        ".text\n");
extern const char secret[];

int main(void)
{
    printf("BREACH: embedded %s\n", secret);
}
