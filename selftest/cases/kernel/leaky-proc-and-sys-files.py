# id: O-46
# name: Leaky proc and sys files
# group: kernel
# priority: 1
# expect: ok
# control: pidns_proc
import errno
import os

FILES = ["/proc/" + name for name in """kcore kallsyms keys key-users timer_list sched_debug iomem
ioports slabinfo kmsg config.gz cmdline version modules interrupts locks swaps partitions diskstats
buddyinfo zoneinfo vmallocinfo pagetypeinfo schedstat softirqs crypto devices consoles meminfo
cpuinfo uptime loadavg stat kpageflags kpagecount bootconfig vmcore sysvipc/shm fs/ext4
driver/rtc acpi/wakeup scsi/scsi bus/pci/devices sys/kernel/hostname sys/kernel/random/boot_id
1/environ 1/cmdline 1/mountinfo 1/cgroup""".split()]
FILES += ["/sys/kernel/notes", "/sys/kernel/vmcoreinfo", "/sys/class/dmi/id/product_name",
          "/sys/fs/cgroup/cgroup.procs", "/dev/mem", "/dev/kmem", "/dev/port", "/dev/kmsg",
          "/dev/kvm", "/dev/fuse", "/dev/vda", "/dev/sda", "/dev/loop-control", "/dev/loop0",
          "/dev/vhost-net", "/dev/vhost-vsock", "/dev/hpet", "/dev/cpu/0/msr", "/dev/userfaultfd"]
# /sys/class/net/lo is an empty directory of the box's own tree.
DIRS = ["/sys/class/net/lo", "/sys/firmware", "/sys/kernel/debug", "/sys/kernel/security", "/sys/class/dmi",
        "/sys/fs/cgroup", "/sys/fs/bpf", "/proc/sys", "/proc/bus", "/proc/irq", "/proc/tty"]

for path in FILES:
    try:
        # O_NONBLOCK: kmsg would wait.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        data = os.read(fd, 4096)
        os.close(fd)
    except OSError as e:
        print("blocked:", path, errno.errorcode[e.errno])
        continue
    if data.strip(b"\0 \n"):
        print("BREACH: read", path, data[:60])
    else:
        print("blocked:", path, "empty")
for path in DIRS:
    try:
        names = os.listdir(path)
        print("BREACH: list" if names else "blocked: empty", path, names[:5])
    except OSError as e:
        print("blocked:", path, errno.errorcode[e.errno])

# What the payload may see of itself must not reveal where Hermes keeps its files.
secrets = [s for s in (os.environ.get("CANARY_DIR"), "/var/lib/hermes", "/work/") if s]
for path in ("/proc/self/mounts", "/proc/self/cgroup", "/proc/self/cmdline", "/proc/self/maps"):
    try:
        text = open(path).read()
    except OSError as e:
        print("blocked:", path, errno.errorcode[e.errno])
        continue
    for secret in secrets:
        if secret in text:
            print("BREACH:", path, "tells", secret)
print("done")
