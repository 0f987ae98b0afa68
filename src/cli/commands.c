/* commands.c: every command and option of the program, once: the command line is read by these tables, and --help,
 * the shells' completions and the man page (pages.c) are made from them. */
#include <stddef.h>

#include "cli/cli.h"

#define OPTION(letter, name, value, field, kind, takes, doc) \
  {letter, name, value, offsetof(Options, field), kind, takes, doc}
#define BOARDS "mps2-an385 mps2-an386 mps2-an500 mps2-an505 mps3-an547 riscv32-virt"
#define FORMS "compact script input ll asm c cuda"

/* clang-format off */
const OptionRow cli_options[] = {
    /* what is written where: by command */
    OPTION('l', "-o", "FILE", output, ONE, TAKES_FILE, "writes there instead of standard output"),
    OPTION('b', "-o", "FILE", output, ONE, TAKES_FILE,
           "what is written follows from the name: .so (for the runtime), .o, .s, .ll, .c, .cu"),
    OPTION('o', "-o", "FILE", output, ONE, TAKES_FILE,
           ".so for the runtime; .o, .a or .c to link into a program, with a header beside that has the typed entry"),
    OPTION('F', "-f", "FORMAT", format, ONE, "so c o a mlf web",
           "so, c, o and a as the file's ending says, for the runtime (default); with -f c, o or a the model becomes a"
           " program ahead of time: plain C that needs no runtime; mlf: the same as an archive in TVM's model library"
           " format (.tar); web: WebAssembly with an ES module, its types and a test page, in the folder that -o"
           " names"),
    OPTION('G', "--pool", "NAME=SIZE[:SPEED]", pools, MANY, NULL,
           "memory that a program ahead of time works in, as in sram=64k; earlier ones are preferred (repeat for more;"
           " default: one, as large as it takes); with the bytes that it moves in a cycle, as in sram=64k:8, what is"
           " moved most goes to the fastest"),
    OPTION('H', "--ram-limit", "SIZE", ram_limit, ONE, NULL,
           "refuses a program ahead of time that needs more RAM than that (workspace, inputs, outputs), as in 64k"),
    OPTION('I', "--io", "WHERE", io, ONE, "caller workspace",
           "where inputs and outputs of a program ahead of time lie: in arrays of the caller's (default), or in the"
           " workspace"),
    OPTION('q', "-o", "FILE", output, ONE, TAKES_FILE,
           "writes there, constants included, so that it can be read again"),
    OPTION('u', "--output", "FILE", output, ONE, TAKES_FILE,
           "writes the outputs: .npz, or .npy when there is one (default: shows them)"),
    OPTION('u', "-o", "FILE", output, ONE, TAKES_FILE, "the same"),
    OPTION('g', "--weights", "HOW", weights, ONE, "trained ready text beside",
           "of .so: as they were trained (default: a small file; loading brings them into form), or ready for the"
           " kernels (mapped and used in place, shared between processes); of C source: text in it, or beside it in"
           " FILE.c.weights, which the compiler takes in (default: text up to 256 KiB, beside from there on)"),
    OPTION('E', "--entry", "NAME", entries, MANY, NULL,
           "a function of the module that callers see (repeat for more; default: main)"),
    OPTION('e', "--entry", "NAME", entries, MANY, NULL,
           "runs this entry (repeat: one after the other; objects that one gives go to inputs of that name or type)"),
    OPTION('C', "--weights-cache", "DIR", cache, ONE, TAKES_DIR,
           "keeps weights that loading brought into form in this folder, for later starts and other processes"),
    /* loop programs */
    OPTION('f', "--form", "FORM", form, ONE, FORMS,
           "compact: loops after lowering, C-like (default); script: the same as TVMScript; input: what was read;"
           " ll, asm, c, cuda: generated code"),
    OPTION('n', "--function", "NAME", function, ONE, NULL, "one function of the file (default: all)"),
    OPTION('t', "--target", "TARGET", target, ONE, "llvm c cuda", "as TVM writes it (default: this machine)"),
    OPTION('@', "--variants", "CPU,CPU", variants, MANY, NULL,
           "code for each of these CPUs of the target in one .so, features behind a + where more are wanted"
           " (x86-64-v2,x86-64-v3 or generic,generic+dotprod); loading it picks the best that the machine can run"),
    /* models */
    OPTION('s', "--shape", "NAME=D,D,…", shapes, MANY, NULL,
           "sizes of an input; ? keeps one open, and 1..8 or ~224 does so too, where kernels are chosen for such sizes"
           " (every size is served; repeat for more inputs)"),
    OPTION('O', "--opt-level", "N", opt_level, ONE, "0 1 2 3 4", "0 to 4 (default 3)"),
    OPTION('D', "--disabled-pass", "P,P", disabled, MANY, TAKES_PASS, "leaves passes out"),
    OPTION('r', "--required-pass", "P,P", required, MANY, TAKES_PASS, "runs them at any level"),
    OPTION('c', "--config", "KEY=VALUE", configs, MANY, TAKES_CONFIG,
           "a setting of the passes (repeat); 'lathe opt --list' shows all"),
    OPTION('Z', "--plan", "FILE", plan, ONE, TAKES_FILE,
           "plans for kernels: lines of a workload's name and a plan, as 'lathe inspect --plans' shows them"),
    OPTION('U', "--tuned", "DB", tuned, ONE, TAKES_FILE,
           "a database of 'lathe tune': kernels that were measured to be faster are taken from it"),
    OPTION('w', "--no-winograd", NULL, no_winograd, FLAG, NULL, "no convolution through Winograd's transform"),
    OPTION('m', "--fast-math", "KIND", fast_math, ONE, "bf16 fp16",
           "bf16: products of bfloat16 values, sums in float32; fp16: float16 arithmetic (AArch64 with fullfp16);"
           " inputs and outputs stay float32"),
    OPTION('x', "--external-data-root", "DIR", external_root, ONE, TAKES_DIR,
           "where external weights may lie (default: the model's folder)"),
    /* runs */
    OPTION('i', "--input", "NAME=WHAT", inputs, MANY, TAKES_FILE,
           "a .npy file, a .npz file that has an array of that name, random, or ones; without NAME= it is for every"
           " input.  Strings come from arrays of text ('<U5', '|S5')"),
    OPTION('k', "--top", "N", top, ONE, NULL, "shows the N largest elements of each row with their places"),
    OPTION('p', "--threads", "N", threads, ONE, NULL, "workers (default: LATHE_NUM_THREADS, or the CPUs there are)"),
    OPTION('h', "--threads", "N,N", threads, ONE, NULL, "one measurement each (default: all workers)"),
    OPTION('W', "--warmup", "N", warmup, ONE, NULL, "runs before measuring (default 3)"),
    OPTION('R', "--repeat", "N", repeat, ONE, NULL, "runs (default: about two seconds' worth)"),
    OPTION('P', "--profile", NULL, profile, FLAG, NULL,
           "a table of the nodes: time, the time that was predicted when the plan was chosen (on all of the target's"
           " cores), share, GFLOP/s by the formula (and as done, where the algorithm does fewer), GB/s, and percent of"
           " what this machine can do"),
    OPTION('X', "--trace", "FILE", trace, ONE, TAKES_FILE, "writes one run as a Chrome trace"),
    /* tuning */
    OPTION('z', "--db", "FILE", db, ONE, TAKES_FILE, "the database that results go to (default: tune.db)"),
    OPTION('Y', "--time", "TIME", limit, ONE, NULL, "how long: 90s, 5m, 1h (default 5m, unless --trials is given)"),
    OPTION('v', "--trials", "N", trials, ONE, NULL, "how many kernels are measured at most"),
    OPTION('y', "--resume", NULL, resume, FLAG, NULL, "what the database has is not measured again"),
    OPTION('Q', "--worker", NULL, worker, FLAG, NULL,
           "measures what another tuner asks for: jobs from the standard input, answers to the standard output"),
    OPTION('S', "--workers", "COMMAND", workers, MANY, NULL,
           "of loop programs: a worker that a shell starts ('ssh host lathe tune --worker'); may be given several"
           " times"),
    OPTION('V', "--threads", "N", threads, ONE, NULL,
           "threads that the model will run on (default: the target's cores); the same as -num-cores=N in the target"),
    /* quantization */
    OPTION('5', "-o", "FILE", output, ONE, TAKES_FILE, "the ONNX file that is written"),
    OPTION('6', "--data", "FOLDER|FILE", data, ONE, TAKES_FILE,
           "samples of the model's input: .npz with an array for each input, .npy for the only one, or a folder of such"
           " files; the first axis counts samples"),
    OPTION('7', "--labels", "FILE", labels, ONE, TAKES_FILE,
           "the right class of each sample, a whole number a line or a .npy vector: accuracy is measured against them"
           " (default: against the float model's answers)"),
    OPTION('8', "--calibrate", "HOW", calibrate, ONE, "kl percentile minmax",
           "how much of the range that was seen is stood for: what keeps the distribution nearest (kl), all but the"
           " outermost elements (percentile, default), or all of it (minmax)"),
    OPTION('4', "--percentile", "P", percentile, ONE, NULL, "the share that percentile keeps (default 99.99)"),
    OPTION('1', "--accuracy-drop", "SHARE", drop, ONE, NULL,
           "how much accuracy may be lost, as in 1%; layers stay in float until that holds (default: any)"),
    OPTION('2', "--samples", "N", samples, ONE, NULL, "how many of the samples scales are found with (default 256)"),
    OPTION('3', "--skip", "NODE,NODE", skip, ONE, NULL, "layers that stay in float, by the names of their nodes"),
    /* lists and the rest */
    OPTION('a', "--pass", "P,P", passes, MANY, TAKES_PASS, "these passes, in order, and no others"),
    OPTION('L', "--list", NULL, list, FLAG, NULL, "lists the passes and the config keys"),
    OPTION('N', "--onnx", NULL, onnx, FLAG, NULL,
           "lists the ONNX operators that can be imported, with the versions from which they have another meaning"),
    OPTION('_', "--tflite", NULL, tflite, FLAG, NULL,
           "lists TFLite's builtin operators that can be imported, with the newest version known"),
    OPTION('d', "--dump-dir", "DIR", dump_dir, ONE, TAKES_DIR, "writes every stage as numbered text"),
    OPTION('T', "--time", NULL, time, FLAG, NULL, "shows where the time went"),
    OPTION('B', "--plans", NULL, plans, FLAG, NULL,
           "each kernel's workload, plan, predicted time and how many plans there were, as --plan takes them; a"
           " model file is compiled for it"),
    OPTION('A', "--alternatives", "NODE", alternatives, ONE, NULL,
           "all plans for the calls of this name (or workload) with their predicted times, the one that was taken"
           " marked '*'"),
    OPTION('J', "--cost", NULL, cost, FLAG, NULL,
           "what the model costs as a program ahead of time for the target: flash, RAM, stack, multiply-accumulates of"
           " each layer, memory over time; implied by the target of a microcontroller"),
    OPTION('K', "--svg", "FILE", svg, ONE, TAKES_FILE, "writes the picture of memory over time, for --cost"),
    /* microcontrollers */
    OPTION('9', "-o", "FOLDER", output, ONE, TAKES_DIR, "the project's folder; it is made where it is not there"),
    OPTION('M', "--board", "BOARD", board, ONE, BOARDS,
           "a board that QEMU has, as 'lathe micro boards' lists them (default: the one of --target, else mps2-an386)"),
    OPTION('0', "--layout", "LAYOUT", layout, ONE, "bare zephyr arduino platformio",
           "bare: needs the compiler, make and QEMU alone (default); or the layout that Zephyr, the Arduino tools or"
           " PlatformIO build"),
    OPTION('j', "--json", NULL, json, FLAG, NULL, "for scripts"),
};
const int cli_noptions = sizeof cli_options / sizeof *cli_options;

const Command cli_commands[] = {
    {"lower", "show a loop program at a stage of compilation", "FILE [options]",
     "Reads TVMScript (@T.prim_func functions) and prints what becomes of it.", "ftndl", NULL,
     "lathe lower examples/matmul.py\n"
     "lathe lower examples/matmul.py --form asm --target \"llvm -mcpu=native\"\n"
     "lathe lower examples/matmul.py --form asm --target \"llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1\"\n",
     TAKES_FILE, cli_run_lower, false},
    {"build", "compile loop programs into one file", "FILE -o OUTPUT [options]",
     "Compiles the functions of a TVMScript file.", "btndU", NULL,
     "lathe build examples/matmul.py -o matmul.so\n"
     "lathe build examples/matmul.py -o matmul.c --target c\n",
     TAKES_FILE, cli_run_build, false},
    {"compile", "compile a model into one file that runs", "MODEL -o OUTPUT [options]",
     "Imports the model (ONNX, TFLite, or Relay text), optimises it and writes one self-contained file: code, weights"
     " and everything a run needs.  What torch.export saved (.pt2) and TorchScript modules (.pt) are compiled through"
     " the Python package.",
     "oFt@sgGHIEODrcZUwmxdT", NULL,
     "lathe compile net.onnx -o net.so --shape input=1,3,224,224\n"
     "lathe compile net.onnx -o net_arm.so --target \"llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1\"\n"
     "lathe compile net.onnx -o net.so --variants x86-64-v2,x86-64-v3,x86-64-v4\n"
     "lathe compile net.onnx -o net.so --opt-level 2 --disabled-pass FuseOps --time\n"
     "lathe compile net.onnx -o net.c\n"
     "lathe compile net.pt2 -o net.so\n"
     "lathe compile net.tflite -o small.so\n"
     "lathe compile net.onnx -f c -o net.c --target cortex-m7 --pool sram=1M --shape input=1,3,224,224\n"
     "lathe compile net.onnx -f web -o web --shape input=1,3,224,224\n",
     TAKES_FILE, cli_run_compile, false},
    {"run", "run a compiled model (or compile one and run it)", "MODEL --input NAME=WHAT … [options]",
     "Runs a compiled model (.so), or a model file, on given inputs and shows or writes its outputs.", "ieukpCs",
     "tODrcZUwmx",
     "lathe run net.so --input random --shape input=1,3,224,224 --top 5\n"
     "lathe run net.onnx --input input=ones --shape input=2,3,224,224 --output out.npz\n",
     TAKES_FILE, cli_run_run, false},
    {"bench", "measure a model, as a whole and node by node", "MODEL [options]",
     "Measures a compiled model (.so), or a model file; inputs are random where nothing is said.", "hWRPXjiCs",
     "tODrcZUwmx",
     "lathe bench net.so --shape input=1,3,224,224 --threads 1,2 --profile\n"
     "lathe bench net.onnx --shape input=1,3,224,224 --json\n",
     TAKES_FILE, cli_run_bench, false},
    {"tune", "measure other ways to compute a model's kernels, and keep the faster ones", "MODEL|FILE.py [options]",
     "Each kernel's plans are measured beside the one that it has untuned, in processes of their own; what is faster by"
     " more than the spread is kept, and the network is measured whole at the end.  Ctrl-C loses nothing: go on with"
     " --resume.  Loop programs (TVMScript, .py) are scheduled by rules whose decisions are searched.",
     "YvzyVSQtsnODrcwmxj", NULL,
     "lathe tune net.onnx --shape input=1,3,224,224 --time 5m --db tune.db\n"
     "lathe tune net.onnx --shape input=1,3,224,224 --trials 200 --threads 1 --db tune.db --resume\n"
     "lathe compile net.onnx --shape input=1,3,224,224 -o net.so --tuned tune.db\n"
     "lathe tune examples/matmul.py --trials 20 --db tune.db && lathe build examples/matmul.py -o matmul.so --tuned"
     " tune.db\n",
     TAKES_FILE, cli_run_tune, false},
    {"db", "look into databases of tuning, and bring them together", "list|show|export|import|merge|prune DB [FILE …]",
     "list DB: the workloads.  show DB [NAME]: the measurements of workloads with NAME in their names.  export DB: all"
     " entries as lines of JSON.  import DB FILE …: takes such lines.  merge DB OTHER …: takes all of other databases. "
     " prune DB: drops what no compilation would use.",
     "lj", NULL,
     "lathe db list tune.db\n"
     "lathe db show tune.db nn.conv2d\n"
     "lathe db export tune.db -o tune.jsonl\n"
     "lathe db merge all.db tune.db\n",
     "list show export import merge prune", cli_run_db, true},
    {"quantize", "make an ONNX model of integers from one of floats", "MODEL.onnx --data DATA -o OUTPUT.onnx [options]",
     "Runs the model on samples to find the range of each tensor, chooses scales (of weights by channel) and writes the"
     " model with QuantizeLinear and DequantizeLinear around its layers, for Lathe and for other runtimes.  Equalised"
     " channels and corrected biases are kept where they make the error less.  The report says of each layer its range,"
     " its scale, signal to noise and whether it stays in float.",
     "65784123j", NULL,
     "lathe quantize net.onnx --data samples.npz -o net_int8.onnx\n"
     "lathe quantize net.onnx --data samples.npz --labels labels.txt --accuracy-drop 1% -o net_int8.onnx\n"
     "lathe quantize net.onnx --data samples/ --calibrate kl --json -o net_int8.onnx\n",
     TAKES_FILE, cli_run_quantize, false},
    {"compare", "show tensor by tensor where two models of a network part",
     "FLOAT.onnx OTHER.onnx --data DATA [options]",
     "Runs both on the same samples and shows of each tensor that both have (in the quantized one as its consumers see"
     " it) the signal to noise and the largest difference.",
     "6j", NULL,
     "lathe compare net.onnx net_int8.onnx --data samples.npz\n",
     TAKES_FILE, cli_run_compare, true},
    {"inspect", "show what a model holds", "MODEL [options]",
     "Inputs, outputs, operators, weights, before anything is compiled; every operator that is not supported, with its"
     " nodes.  Of a compiled model (.so, .o, .a, for any machine; it is read, not loaded) its kernels, memory and the"
     " CPU features it needs.",
     "BAJKGHIstxj", NULL,
     "lathe inspect net.onnx\n"
     "lathe inspect net.onnx --shape input=1,3,224,224 --target cortex-m7 --svg memory.svg\n"
     "lathe inspect net.so --json\n"
     "lathe inspect net.onnx --shape input=1,3,224,224 --plans\n"
     "lathe inspect net.onnx --shape input=1,3,224,224 --alternatives nn.conv2d\n",
     TAKES_FILE, cli_run_inspect, false},
    {"micro", "projects for microcontrollers: a model with golden vectors, built and run in QEMU",
     "new MODEL -o FOLDER | build FOLDER | run FOLDER | size FOLDER | boards",
     "new: compiles the model for a board's processor, runs it on this machine, and writes a project with the"
     " program, the inputs and the outputs they must give (inputs are random where nothing is said).  build: compiles"
     " it with the Arm or RISC-V GNU tools.  run: runs it in QEMU, compares the outputs (integers bit for bit) and"
     " shows the instructions of each layer.  size: bytes of the model's code, constants and stack.  boards: what"
     " QEMU has.",
     "9M0tsiODHrcxj", NULL,
     "lathe micro new net.tflite -o net_m4 --board mps2-an386\n"
     "lathe micro run net_m4\n"
     "lathe micro size net_m4 --json\n"
     "lathe micro new net.onnx --shape input=1,3,224,224 -o sketch --target cortex-m7 --layout arduino\n",
     "new build run size boards", cli_run_micro, true},
    {"opt", "run passes and print the graph", "FILE [options] | --list",
     "Reads Relay text (- for standard input) or an ONNX or TFLite model.  Without --pass the default passes of the"
     " level run; --time goes to standard error.",
     "aLOtsDrcmxqTj", NULL,
     "lathe opt net.relay --pass SimplifyInference,FoldConstant,FuseOps\n"
     "lathe opt net.onnx --opt-level 3 --time\n"
     "lathe opt --list\n",
     TAKES_FILE, cli_run_opt, false},
    {"ops", "list the operators", "[options]",
     "Every operator of the graph with its fusion kind and a line of doc; --json has arguments and attributes too.",
     "N_j", NULL,
     "lathe ops | grep nn.\n"
     "lathe ops --onnx\n"
     "lathe ops --tflite\n",
     NULL, cli_run_ops, false},
    {"targets", "list what code can be made for, and this machine's properties", "[options]",
     "The kinds of targets, and the properties of this machine or of the target that is said.", "tj", NULL,
     "lathe targets\n"
     "lathe targets --target \"llvm -mcpu=skylake-avx512\" --json\n",
     NULL, cli_run_targets, false},
    {"completion", "print what makes a shell complete these commands", "SHELL",
     "For bash, zsh or fish; an installed Lathe has brought them along.", "", NULL,
     "lathe completion bash > ~/.local/share/bash-completion/completions/lathe\n"
     "lathe completion fish > ~/.config/fish/completions/lathe.fish\n",
     "bash zsh fish", cli_run_completion, false},
    {"man", "print the man page", "", "Every command and option, as a page that man(1) shows.", "", NULL,
     "lathe man > lathe.1\n",
     NULL, cli_run_man, false},
};
const int cli_ncommands = sizeof cli_commands / sizeof *cli_commands;

const Fact cli_exit_states[] = {
    {"0", "done"},
    {"1", "the input was refused; one sentence on standard error says why"},
    {"2", "the command line was wrong"},
    {"3", "a fault of Lathe's own"},
    {"130", "stopped by Ctrl-C"},
    {NULL, NULL},
};
const Fact cli_environment[] = {
    {"LATHE_NUM_THREADS", "threads that parallel loops use (default: the CPUs this process may run on)"},
    {"CC", "the C compiler that code of target 'c' goes through (default: cc)"},
    {NULL, NULL},
};
/* clang-format on */
