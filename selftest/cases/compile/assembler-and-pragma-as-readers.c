// id: X-51
// name: Assembler and pragma as readers
// group: compile
// priority: 1
// expect: compile_error
// control: mount
#if __has_include("@CANARY_FILE@")
#include <stdio.h>
int main(void)
{
    puts("BREACH: the compiler sees the host's files");
}
#else
#pragma GCC dependency "@CANARY_FILE@"
#pragma GCC dependency "/etc/hermes-canary"
#pragma GCC push_options
#pragma GCC optimize("-fplugin=/box/x.so")
#pragma GCC target("arch=native")
__asm__(".include \"@CANARY_FILE@\"");
__asm__(".include \"/etc/hermes-canary\"");
__asm__(".include \"/etc/shadow\"");
int main(void)
{
    return 0;
}
#endif
