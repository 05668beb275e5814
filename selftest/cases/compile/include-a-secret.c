// id: O-48
// name: Include a secret
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
#include "@CANARY_FILE@"
#include "/etc/hermes-canary"
#include "../../../../etc/shadow"
#include </etc/hermes-canary>
#include "../../../../../../../../../../@CANARY_FILE@"
int main(void)
{
    return 0;
}
#endif
