/* SPDX-License-Identifier: Apache-2.0 */

/* Build-time program: turns policy.h into classic BPF (--header) and into the published list
 * (--markdown; --check FILE compares). The filter tests the architecture, then x32, then finds
 * the number by a balanced binary search over ranges with the same answer; rules about
 * arguments are blocks behind the search. Code is emitted from its last instruction to its
 * first: every jump target is then known when the jump is written, so there are no labels to
 * resolve, and a target out of reach of the 8-bit offsets gets a 32-bit jump on the way. */

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy.h"

#define X32_BIT 0x40000000u
#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

enum arch { ARCH_X86_64, ARCH_AARCH64, ARCH_COUNT };

static const struct {
    const char *name;
    uint32_t audit;
} arches[ARCH_COUNT] = {
    [ARCH_X86_64] = {"x86_64", AUDIT_ARCH_X86_64},
    [ARCH_AARCH64] = {"aarch64", AUDIT_ARCH_AARCH64},
};

/* The table is included once per kind of row. */

enum rule {
#define RULE(rule, text) RULE_##rule,
#include "policy.h"
    RULE_COUNT
};

static const struct {
    const char *name;
    const char *text;
} rules[RULE_COUNT] = {
#define RULE(rule, text) [RULE_##rule] = {#rule, text},
#include "policy.h"
};

static const struct when {
    enum rule rule;
    int answer;
    const char *answer_text;
    const char *tests_text;
    struct seccomp_test tests[WHEN_MAX_TESTS];
} whens[] = {
#define WHEN(rule, answer, ...) {RULE_##rule, answer, #answer, #__VA_ARGS__, {__VA_ARGS__}},
#include "policy.h"
};

static const struct call {
    const char *name; /* NULL: the row opens a group */
    int numbers[ARCH_COUNT];
    int answer;
    const char *answer_text;
    const char *group;
    const char *reason;
} calls[] = {
#define GROUP(title, reason) {NULL, {NONE, NONE}, 0, NULL, title, reason},
#define CALL(name, x86_64, aarch64, answer)                                                    \
    {#name, {x86_64, aarch64}, answer, #answer, NULL, NULL},
#include "policy.h"
};

static const struct instead {
    const char *name;
    int answer;
    const char *reason;
} insteads[] = {
#define ROOT(name, answer, reason) {#name, answer, reason},
#include "policy.h"
};

/* The filters that are made: for ordinary boxes, and for boxes with BOX_ROOT. */
static const struct filter {
    const char *name;
    bool is_root;
} filters[] = {{"seccomp_filter", false}, {"seccomp_root_filter", true}};

/* Emission, last instruction first. A position counts instructions from the end of the code, so
 * it stays valid while code grows at the front; 0 is not a position. */

enum { CODE_MAX = BPF_MAXINSNS, NUMBER_MAX = 1024, REACH = 255 };

static struct {
    struct sock_filter insns[CODE_MAX];
    unsigned count;
    unsigned answers[RULE_BASE + RULE_COUNT + 1]; /* position of each answer, by answer + 1 */
    unsigned kill;
} code;

_Noreturn static void die(const char *message)
{
    fprintf(stderr, "seccomp_gen: %s\n", message);
    exit(1);
}

static unsigned emit(uint16_t op, unsigned jt, unsigned jf, uint32_t k)
{
    if (code.count == CODE_MAX)
        die("the filter is longer than the kernel takes");
    code.count++;
    code.insns[CODE_MAX - code.count] =
        (struct sock_filter){.code = op, .jt = (uint8_t)jt, .jf = (uint8_t)jf, .k = k};
    return code.count;
}

/* A position that leads to `to` and that the instruction emitted next, or the one after it, can
 * reach. */
static unsigned near(unsigned to)
{
    if (code.count - to < REACH)
        return to;
    return emit(BPF_JMP | BPF_JA, 0, 0, code.count - to);
}

static unsigned emit_branch(uint16_t test, uint32_t k, unsigned yes, unsigned no)
{
    yes = near(yes);
    no = near(no);
    return emit(BPF_JMP | test | BPF_K, code.count - yes, code.count - no, k);
}

static unsigned emit_load(size_t offset)
{
    return emit(BPF_LD | BPF_W | BPF_ABS, 0, 0, (uint32_t)offset);
}

/* seccomp_data holds 64-bit arguments in native order: little-endian on both architectures. */
static size_t arg_low(unsigned arg)
{
    return offsetof(struct seccomp_data, args) + arg * sizeof(uint64_t);
}

static unsigned emit_test(const struct seccomp_test *test, unsigned yes, unsigned no)
{
    if (test->wide) {
        emit_branch(BPF_JEQ, 0, no, yes);
        unsigned high = emit_load(arg_low(test->arg) + sizeof(uint32_t));
        emit_branch(BPF_JEQ, 0, high, yes);
        return emit_load(arg_low(test->arg));
    }
    unsigned found = test->negate ? no : yes;
    unsigned other = test->negate ? yes : no;
    for (unsigned i = test->value_count; i-- > 0;)
        other = emit_branch(BPF_JEQ, test->values[i], found, other);
    if (test->mask != UINT32_MAX)
        emit(BPF_ALU | BPF_AND | BPF_K, 0, 0, test->mask);
    return emit_load(arg_low(test->arg));
}

static unsigned answer_at(int answer);

static unsigned emit_rule(enum rule rule)
{
    unsigned next = answer_at(ALLOW);
    for (size_t i = COUNT_OF(whens); i-- > 0;) {
        const struct when *when = &whens[i];
        if (when->rule != rule)
            continue;
        unsigned otherwise = next;
        next = answer_at(when->answer);
        for (unsigned t = WHEN_MAX_TESTS; t-- > 0;)
            if (when->tests[t].value_count || when->tests[t].wide)
                next = emit_test(&when->tests[t], next, otherwise);
    }
    return next;
}

/* The position of the code that gives this answer, emitted at its first use. */
static unsigned answer_at(int answer)
{
    unsigned *at = &code.answers[answer + 1];
    if (!*at) {
        if (answer >= RULE_BASE)
            *at = emit_rule((enum rule)(answer - RULE_BASE));
        else if (answer == ALLOW)
            *at = emit(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW);
        else
            *at = emit(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | (uint32_t)answer);
    }
    return *at;
}

/* Ranges: first number of each run of numbers with one answer. */
struct range {
    uint32_t first;
    int answer;
};

static const struct instead *instead_of(const struct call *call)
{
    for (size_t i = 0; call->name && i < COUNT_OF(insteads); i++)
        if (!strcmp(call->name, insteads[i].name))
            return &insteads[i];
    return NULL;
}

static size_t ranges_of(enum arch arch, bool is_root, struct range ranges[NUMBER_MAX])
{
    static int answers[NUMBER_MAX];
    static bool named[NUMBER_MAX];
    for (size_t i = 0; i < NUMBER_MAX; i++) {
        answers[i] = ENOSYS;
        named[i] = false;
    }
    for (size_t i = 0; i < COUNT_OF(calls); i++) {
        int number = calls[i].numbers[arch];
        if (number == NONE)
            continue;
        if (number < 0 || number >= NUMBER_MAX - 1 || named[number])
            die("a number stands in two rows, or is out of range");
        named[number] = true;
        const struct instead *instead = is_root ? instead_of(&calls[i]) : NULL;
        answers[number] = instead ? instead->answer : calls[i].answer;
    }
    size_t count = 0;
    for (uint32_t i = 0; i < NUMBER_MAX; i++)
        if (count == 0 || ranges[count - 1].answer != answers[i])
            ranges[count++] = (struct range){i, answers[i]};
    return count;
}

static unsigned emit_search(const struct range *ranges, size_t count)
{
    if (count == 1)
        return answer_at(ranges[0].answer);
    size_t half = count / 2;
    unsigned right = emit_search(ranges + half, count - half);
    unsigned left = emit_search(ranges, half);
    return emit_branch(BPF_JGE, ranges[half].first, right, left);
}

static void emit_filter(enum arch arch, bool is_root)
{
    static struct range ranges[NUMBER_MAX];
    size_t count = ranges_of(arch, is_root, ranges);

    memset(&code, 0, sizeof(code));
    code.kill = emit(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_KILL_PROCESS);
    /* Returns are emitted first, so they come last in the code; then the rules. The search
     * stays in one piece. */
    for (size_t i = 0; i < count; i++)
        if (ranges[i].answer < RULE_BASE)
            answer_at(ranges[i].answer);
    for (size_t i = 0; i < count; i++)
        answer_at(ranges[i].answer);

    unsigned search = emit_search(ranges, count);
    if (arch == ARCH_X86_64) {
        /* -1 is not an x32 call: fallbacks like `#define __NR_new -1` pass it and expect
         * ENOSYS. */
        unsigned high = emit_branch(BPF_JEQ, UINT32_MAX, answer_at(ENOSYS), code.kill);
        emit_branch(BPF_JGE, X32_BIT, high, search);
    } else if (search != code.count) {
        die("the search must follow the load of the number");
    }
    unsigned number = emit_load(offsetof(struct seccomp_data, nr));
    emit_branch(BPF_JEQ, arches[arch].audit, number, code.kill);
    emit_load(offsetof(struct seccomp_data, arch));
}

static void print_filter(FILE *out, const struct filter *filter, enum arch arch)
{
    emit_filter(arch, filter->is_root);
    fprintf(out,
        "\n__attribute__((unused)) static const struct sock_filter "
        "%s_%s[%u] = {\n",
        filter->name, arches[arch].name, code.count);
    for (unsigned i = CODE_MAX - code.count; i < CODE_MAX; i++)
        fprintf(out, "    {0x%02x, %u, %u, 0x%08x},\n", code.insns[i].code, code.insns[i].jt,
            code.insns[i].jf, code.insns[i].k);
    fputs("};\n", out);
}

static void print_header(FILE *out)
{
    fputs("/* Made by seccomp_gen from seccomp/policy.h. */\n#include <linux/filter.h>\n", out);
    for (enum arch arch = 0; arch < ARCH_COUNT; arch++)
        for (size_t i = 0; i < COUNT_OF(filters); i++)
            print_filter(out, &filters[i], arch);
    fputs("\n#if defined(__x86_64__) && !defined(__ILP32__)\n"
          "#define seccomp_filter seccomp_filter_x86_64\n"
          "#define seccomp_root_filter seccomp_root_filter_x86_64\n"
          "#elif defined(__aarch64__) && defined(__AARCH64EL__)\n"
          "#define seccomp_filter seccomp_filter_aarch64\n"
          "#define seccomp_root_filter seccomp_root_filter_aarch64\n"
          "#else\n#error \"seccomp/policy.h has no numbers for this architecture\"\n#endif\n",
        out);
}

static void print_number(FILE *out, int number)
{
    if (number == NONE)
        fputs(" – |", out);
    else
        fprintf(out, " %d |", number);
}

static void print_answer(FILE *out, const struct call *call)
{
    if (call->answer >= RULE_BASE)
        fprintf(out, " rule [%s](#rule-%s) |\n", rules[call->answer - RULE_BASE].name,
            rules[call->answer - RULE_BASE].name);
    else
        fprintf(out, " %s |\n", call->answer == ALLOW ? "allowed" : call->answer_text);
}

static void print_intro(FILE *out)
{
    size_t allowed = 0, refused = 0, ruled = 0;
    for (size_t i = 0; i < COUNT_OF(calls); i++) {
        if (!calls[i].name)
            continue;
        if (calls[i].answer == ALLOW)
            allowed++;
        else if (calls[i].answer >= RULE_BASE)
            ruled++;
        else
            refused++;
    }
    fprintf(out,
        "# System calls of a box\n\n"
        "Every process of a box runs under one seccomp filter, loaded before anything of a\n"
        "stranger's is read. It is an allow list:\n%zu calls are allowed, %zu are decided by "
        "their arguments, %zu are "
        "refused by name, and any other\nnumber answers ENOSYS. A call of a foreign "
        "architecture (`int 0x80` on x86-64) or with an x32 number\nkills the process.\n\n"
        "This page is made from the table the filter is made from: "
        "`seccomp_gen --markdown > docs/seccomp.md`.\n",
        allowed, ruled, refused);
    fputs("\n## What that means for programs\n\n"
          "- Debuggers and tracers (gdb, strace, perf) do not work: ptrace is refused.\n"
          "- Sanitizers need `ASAN_OPTIONS=disable_coredump=0:detect_leaks=0` (and "
          "`TSAN_OPTIONS=disable_coredump=0`):\n  they set the core limit and give up when "
          "refused; the leak check traces its own process.\n"
          "- io_uring and kernel AIO are absent; libraries that use them fall back. Go listens "
          "by TCP, not MPTCP.\n",
        out);
}

static void print_calls(FILE *out)
{
    for (size_t i = 0; i < COUNT_OF(calls); i++) {
        const struct call *call = &calls[i];
        if (!call->name) {
            fprintf(out,
                "\n## %s\n\n%s\n\n| call | x86-64 | aarch64 | answer |\n|---|---|---|---|\n",
                call->group, call->reason);
            continue;
        }
        fprintf(out, "| `%s` |", call->name);
        print_number(out, call->numbers[ARCH_X86_64]);
        print_number(out, call->numbers[ARCH_AARCH64]);
        print_answer(out, call);
    }
}

static void print_insteads(FILE *out)
{
    fputs(
        "\n## Builds upon a whole root\n\n"
        "The box that builds an image upon a whole root ([images.md](images.md)) has the same "
        "filter, but for these calls:\n\n"
        "| call | answer | reason |\n|---|---|---|\n",
        out);
    for (size_t i = 0; i < COUNT_OF(insteads); i++)
        fprintf(out, "| `%s` | %s | %s |\n", insteads[i].name,
            insteads[i].answer == ALLOW ? "allowed" : "0, and nothing is done",
            insteads[i].reason);
}

static void print_rules(FILE *out)
{
    fputs(
        "\n## Rules about arguments\n\nThe first line whose tests all hold decides; if none "
        "does, the call is allowed. `IS(0, A)` means: argument 0\nis A. Arguments are compared "
        "as 32 bits, as the kernel takes them; only `NOT_NULL` looks at all 64.\n",
        out);
    for (enum rule rule = 0; rule < RULE_COUNT; rule++) {
        fprintf(out, "\n### Rule %s\n\n%s\n\n", rules[rule].name, rules[rule].text);
        for (size_t i = 0; i < COUNT_OF(whens); i++)
            if (whens[i].rule == rule)
                fprintf(out, "- `%s`: %s\n", whens[i].tests_text,
                    whens[i].answer == ALLOW ? "allowed" : whens[i].answer_text);
    }
}

static void print_markdown(FILE *out)
{
    print_intro(out);
    print_calls(out);
    print_insteads(out);
    print_rules(out);
}

/* 0 when the file holds exactly what --markdown prints. */
static int check_markdown(const char *path)
{
    char *want = NULL;
    size_t want_len = 0;
    FILE *memory = open_memstream(&want, &want_len);
    if (!memory)
        die("out of memory");
    print_markdown(memory);
    if (fclose(memory))
        die("out of memory");

    FILE *in = fopen(path, "re");
    if (!in) {
        perror(path);
        free(want);
        return 1;
    }
    size_t at = 0, line = 1;
    int c;
    while ((c = fgetc(in)) != EOF && at < want_len && (char)c == want[at])
        line += want[at++] == '\n';
    int ret = c != EOF || at != want_len;
    if (ret)
        fprintf(stderr, "%s:%zu: differs from the table; run seccomp_gen --markdown > %s\n",
            path, line, path);
    fclose(in);
    free(want);
    return ret;
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "--check"))
        return check_markdown(argv[2]);
    if (argc == 2 && !strcmp(argv[1], "--markdown"))
        print_markdown(stdout);
    else if (argc == 2 && !strcmp(argv[1], "--header"))
        print_header(stdout);
    else
        die("usage: seccomp_gen --header | --markdown | --check FILE");
    if (fflush(stdout) || ferror(stdout))
        die("cannot write");
    return 0;
}
