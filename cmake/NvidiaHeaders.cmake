# NVIDIA's headers are not ours to ship. `./run` passes their directories; a build by pip finds them in the wheels that
# pyproject.toml names as build requirements (nvidia-cuda-runtime, nvidia-cuda-runtime-cu12, nvidia-nvml-dev).
set(VGPUMGR_CUDA13_INCLUDE "" CACHE PATH "directory of CUDA 13's cuda.h and cuda_runtime_api.h")
set(VGPUMGR_CUDA12_INCLUDE "" CACHE PATH "directory of CUDA 12's cuda.h and cuda_runtime_api.h")
set(VGPUMGR_NVML_INCLUDE "" CACHE PATH "directory of nvml.h")

# vgpumgr_find_header(VARIABLE HEADER PATTERN): looks below the interpreter's `nvidia` namespace packages
function(vgpumgr_find_header variable header pattern)
  if(${variable})
    return()
  endif()
  execute_process(
    COMMAND ${Python3_EXECUTABLE} -c "import glob, nvidia
for root in nvidia.__path__:
    for found in sorted(glob.glob(f'{root}/${pattern}/${header}')):
        print(found.rsplit('/', 1)[0]); raise SystemExit"
    OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT found)
    message(FATAL_ERROR "${header} (${pattern}) not found: set ${variable}, or install NVIDIA's header wheel")
  endif()
  set(${variable} ${found} CACHE PATH "" FORCE)
endfunction()

vgpumgr_find_header(VGPUMGR_CUDA13_INCLUDE cuda.h "cu13/include")
vgpumgr_find_header(VGPUMGR_CUDA12_INCLUDE cuda.h "cuda_runtime/include")
vgpumgr_find_header(VGPUMGR_NVML_INCLUDE nvml.h "*/include")
