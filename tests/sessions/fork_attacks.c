/* SPDX-License-Identifier: Apache-2.0 */

/* What the copy of a hostile session does while it is confined (test_session_fork_hostile.py).
 * The test compiles this without a C library and loads it into the session's interpreter. Each
 * attack says hello, waits for the answer in its own way, and comes back if it gets one. */

typedef unsigned long u64;

/* Shared with the original, which reads it when the copy is dead. */
struct seen {
    long rounds; /* of the probe, */
    long odd;    /* and how many calls were answered otherwise than by the filter, or with a */
    long call;   /* capability: the last one's number */
    long answer; /* and answer */
    long pid;
    long word; /* written by a process that stays with the original */
};

static volatile struct seen *seen;
void begin(volatile struct seen *to)
{
    seen = to;
}

static long call6(long n, long a, long b, long c, long d, long e, long f)
{
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long r;
    __asm__ volatile("syscall"
                     : "=a"(r)
                     : "0"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return r;
}
#define CALL(n, a, b, c, d) call6(n, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)

enum {
    READ = 0,
    WRITE = 1,
    MPROTECT = 10,
    MUNMAP = 11,
    SIGACTION = 13,
    PAUSE = 34,
    SETITIMER = 38,
    GETPID = 39,
    CLONE = 56,
    EXIT = 60,
    CAPGET = 125,
    PRCTL = 157,
    RSEQ = 334,
    PPOLL = 271,
    EPERM = 1,
    ENOSYS = 38,
};

static void expect(long n, long answer, long wanted)
{
    if (answer == wanted)
        return;
    seen->odd++;
    seen->call = n;
    seen->answer = answer;
}

/* The kernel answers each of these otherwise than the filter does. */
void probe(void)
{
    struct {
        unsigned version, pid;
    } head = {0x20080522, 0};
    unsigned caps[6] = {0};
    expect(425, CALL(425, 0, 0, 0, 0), -ENOSYS);         /* io_uring_setup */
    expect(294, CALL(294, -1, 0, 0, 0), -ENOSYS);        /* inotify_init1 */
    expect(250, CALL(250, 0, -3, 0, 0), -ENOSYS);        /* keyctl */
    expect(437, CALL(437, -100, "/", 0, 0), -ENOSYS);    /* openat2 */
    expect(272, CALL(272, 0, 0, 0, 0), -EPERM);          /* unshare nothing */
    expect(272, CALL(272, 0x10000000, 0, 0, 0), -EPERM); /* unshare the user namespace */
    expect(CAPGET, CALL(CAPGET, &head, caps, 0, 0), 0);
    expect(CAPGET, caps[0] | caps[1] | caps[3] | caps[4], 0);
    seen->rounds++;
}

/* What the probe does when an answer is another. */
void wrong(void)
{
    expect(GETPID, CALL(GETPID, 0, 0, 0, 0), -ENOSYS);
}

void ask(int fd)
{
    char word = 'h';
    (void)CALL(WRITE, fd, &word, 1, 0);
    (void)CALL(READ, fd, &word, 1, 0);
}

/* Its own code all the time, and never where it should wait. */
void loop(int fd)
{
    (void)CALL(WRITE, fd, "h", 1, 0);
    while (1)
        probe();
}

struct action {
    void (*handler)(int);
    u64 flags;
    void (*restorer)(void);
    u64 mask;
};
__asm__(".globl restore\nrestore: mov $15, %eax\n syscall\n");
void restore(void);
static void on_signal(int signal)
{
    (void)signal;
    probe();
}

static void handle(int signal)
{
    const struct action action = {on_signal, 0x04000000 | 0x10000000, restore, 0};
    (void)CALL(SIGACTION, signal, &action, 0, 8);
}

/* A handler that comes as often as it can. */
void signals(int fd)
{
    long timer[4] = {0, 200, 0, 200};
    handle(14);
    (void)CALL(SETITIMER, 0, timer, 0, 0);
    while (!seen->rounds) /* until it has come */
        ;
    ask(fd);
    timer[1] = timer[3] = 0;
    (void)CALL(SETITIMER, 0, timer, 0, 0);
}

/* A process of the original's stops and continues it; see test. */
void stopped(int fd)
{
    handle(18);
    seen->pid = CALL(GETPID, 0, 0, 0, 0);
    while (!seen->rounds) /* until it has been */
        ;
    ask(fd);
}

/* Calls from anywhere but here are a signal (system-call user dispatch). */
static char selector = 1;
void dispatch(int fd)
{
    static unsigned char elsewhere[] = {0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0xc3}; /* getpid */
    handle(31);
    (void)CALL(MPROTECT, (u64)elsewhere & ~4095ul, 8192, 7, 0);
    (void)call6(PRCTL, 59, 1, (u64)call6 & ~4095ul, 8192, (long)&selector, 0);
    ((void (*)(void))elsewhere)(); /* the control: the handler runs */
    if (!seen->rounds)
        seen->odd = -1;
    seen->rounds = 0;
    ask(fd);
}

/* Waits with the stack at `top`. */
void ask_on(int fd, u64 top)
{
    long r;
    char word = 'h';
    (void)CALL(WRITE, fd, &word, 1, 0);
    __asm__ volatile("mov %%rsp, %%rbx\n mov %1, %%rsp\n syscall\n mov %%rbx, %%rsp"
                     : "=a"(r)
                     : "r"(top), "0"((long)READ), "D"((long)fd), "S"(&word), "d"(1L)
                     : "rbx", "rcx", "r11", "memory");
}

/* Memory that it shares with the original; who has the other end of it is frozen meanwhile. */
void shared_stack(int fd)
{
    while (!seen->word)
        ;
    ask_on(fd, (u64)seen + 4096 - 64);
}

/* Restartable sequences: when it resumes at its own `syscall`, the kernel leads it to `abort`,
 * which makes the calls that it was to make by itself, but one. */
struct sequence {
    unsigned version, flags;
    u64 start, size, abort;
};
static struct sequence sequence __attribute__((aligned(32)));
__asm__("sequence_read:\n"
        " push %rbx\n push %r12\n push %r13\n"
        " mov %rcx, %r12\n mov %r8, %r13\n xor %eax, %eax\n"
        " mov %r13, 8(%r12)\n"
        "sequence_start: syscall\n"
        "sequence_end: jmp 3f\n"
        " .long 0x53053053\n"
        "sequence_abort:\n"
        " mov %r13, 8(%r12)\n"
        " cmp $117, %rax\n je 2f\n"
        " syscall\n jmp 3f\n"
        "2: mov $13, %ebx\n xor %ecx, %ecx\n int $0x80\n" /* 117 is ipc() here: msgget() */
        "3: movq $0, 8(%r12)\n"
        " pop %r13\n pop %r12\n pop %rbx\n ret\n");
extern char sequence_start[], sequence_end[], sequence_abort[];
long sequence_read(int fd, char *word, long one, u64 area, struct sequence *s);

void abort_to(int fd, u64 area)
{
    char word = 'h';
    sequence = (struct sequence){0, 0, (u64)sequence_start,
        (u64)sequence_end - (u64)sequence_start, (u64)sequence_abort};
    (void)CALL(WRITE, fd, &word, 1, 0);
    (void)sequence_read(fd, &word, 1, area, &sequence);
}

/* The same around the calls that are made for it: `abort` counts, and then makes the call, from
 * the right place and with the right registers. */
__asm__("vdso_read:\n"
        " push %rbx\n push %r12\n push %r13\n push %r14\n"
        " mov %rcx, %r12\n mov %r8, %r13\n mov %r9, %r14\n mov 40(%rsp), %rbx\n"
        " xor %eax, %eax\n"
        " mov %r13, 8(%r12)\n"
        " syscall\n"
        " movq $0, 8(%r12)\n"
        " pop %r14\n pop %r13\n pop %r12\n pop %rbx\n ret\n"
        " .long 0x53053053\n"
        "vdso_abort:\n"
        " incq (%rbx)\n mov %r13, 8(%r12)\n jmp *%r14\n");
extern char vdso_abort[];
long vdso_read(int fd, char *word, long one, u64 area, struct sequence *s, u64 site,
    volatile struct seen *to);

void abort_there(int fd, u64 area, u64 vdso)
{
    u64 site = vdso;
    char word = 'h';
    while (*(const unsigned char *)site != 0x0f || *(const unsigned char *)(site + 1) != 0x05)
        site++;
    sequence = (struct sequence){0, 0, site, 2, (u64)vdso_abort};
    (void)CALL(WRITE, fd, &word, 1, 0);
    (void)vdso_read(fd, &word, 1, area, &sequence, site, seen);
}

/* With an area that a process of the original's can write to. */
void shared_area(int fd, u64 old)
{
    u64 area = (u64)seen + 2048;
    expect(RSEQ, CALL(RSEQ, old, 32, 1, 0x53053053), 0);
    expect(RSEQ, CALL(RSEQ, area, 32, 0, 0x53053053), 0);
    abort_to(fd, area);
}

/* The page that calls are made from. */
void vdso_away(int fd, u64 at)
{
    expect(MUNMAP, CALL(MUNMAP, at, 8192, 0, 0), 0);
    ask(fd);
}

void vdso_writable(int fd, u64 at)
{
    expect(MPROTECT, CALL(MPROTECT, at, 8192, 7, 0), 0);
    ask(fd);
}

/* No `syscall` in it, and what there is instead leads to code of its own. */
void vdso_other(int fd, u64 at)
{
    unsigned char *code = (unsigned char *)at;
    expect(MPROTECT, CALL(MPROTECT, at, 8192, 7, 0), 0);
    for (int i = 0; i < 8191; i++) {
        if (code[i] == 0x0f && code[i + 1] == 0x05)
            code[i] = code[i + 1] = 0xcc;
    }
    expect(MPROTECT, CALL(MPROTECT, at, 8192, 5, 0), 0);
    ask(fd);
}

/* Another page, with a `syscall` at its begin. */
void vdso_changed(int fd, u64 at)
{
    unsigned char *code = (unsigned char *)at;
    expect(MPROTECT, CALL(MPROTECT, at, 8192, 7, 0), 0);
    code[0] = 0x0f;
    code[1] = 0x05;
    expect(MPROTECT, CALL(MPROTECT, at, 8192, 5, 0), 0);
    ask(fd);
}

/* A process shares its memory. Its first thread has ended, and with that the memory that can be
 * compared by the number of the process; another thread lives. */
static char stacks[2][4096] __attribute__((aligned(16)));
static void linger(void)
{
    while (1)
        CALL(PAUSE, 0, 0, 0, 0);
}
static long start(u64 flags, void *stack, void (*run)(void))
{
    long r;
    ((u64 *)stack)[-2] = (u64)run;
    __asm__ volatile("xor %%r10, %%r10\n xor %%r8, %%r8\n syscall\n test %%rax, %%rax\n"
                     " jnz 1f\n pop %%rax\n call *%%rax\n ud2\n 1:"
                     : "=a"(r)
                     : "0"((long)CLONE), "D"(flags), "S"((u64 *)stack - 2), "d"(0L)
                     : "rcx", "r8", "r10", "r11", "memory");
    return r;
}
static void leader(void)
{
    seen->word = start(0x100 | 0x200 | 0x400 | 0x800 | 0x10000, stacks[1] + 4096, linger);
    (void)CALL(EXIT, 0, 0, 0, 0); /* this thread alone */
}
void headless(int fd)
{
    if (start(0x100 | 17, stacks[0] + 4096, leader) < 0)
        seen->odd = -1;
    while (!seen->word)
        ;
    long nap[2] = {0, 50000000};
    (void)CALL(35, nap, 0, 0, 0);
    ask(fd);
}

/* Waits in other calls, and in other modes of the processor. */
void polls(int fd)
{
    struct {
        int fd;
        short events, found;
    } one = {-1, 1, 0};
    u64 mask = 0;
    handle(14);
    (void)CALL(WRITE, fd, "h", 1, 0);
    (void)call6(PPOLL, (long)&one, 1, 0, (long)&mask, 8, 0);
}

static void go_32(int fd, u64 low, const unsigned char *code, int size)
{
    for (int i = 0; i < size; i++)
        ((unsigned char *)low)[i] = code[i];
    (void)CALL(WRITE, fd, "h", 1, 0);
    __asm__ volatile("push $0x23\n push %0\n lretq" : : "r"(low), "b"(fd), "c"(low), "d"(1));
}

void spin_32(int fd, u64 low)
{
    static const unsigned char code[] = {0xeb, 0xfe};
    go_32(fd, low, code, sizeof(code));
}

void read_32(int fd, u64 low)
{
    static const unsigned char code[] = {0xb8, 3, 0, 0, 0, 0xcd, 0x80, 0xeb, 0xf7};
    go_32(fd, low, code, sizeof(code));
}

void vsyscall(int fd)
{
    (void)CALL(WRITE, fd, "h", 1, 0);
    while (1)
        ((long (*)(void *))0xffffffffff600400)((void *)0);
}

/* Its own call is in memory that a process of the original's changes. */
void shared_code(int fd)
{
    static const unsigned char code[] = {0x0f, 0x05, 0xc3}; /* syscall, ret */
    char *at = (char *)seen + 1024;
    long r;
    for (int i = 0; i < 3; i++)
        at[i] = (char)code[i];
    while (!seen->word)
        ;
    (void)CALL(WRITE, fd, "h", 1, 0);
    __asm__ volatile("call *%1"
                     : "=a"(r)
                     : "r"(at), "0"((long)READ), "D"((long)fd), "S"(at + 64), "d"(1L)
                     : "rcx", "r11", "memory");
}
