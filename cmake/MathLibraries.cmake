# NVIDIA's mathematics libraries, each under its SONAME: those of a guest, which forward, and those of a simulated machine,
# which compute.

# add_guest_math(NAME MAJOR SOURCES... [DEFINES...]): a guest's libNAME.so.MAJOR. What spec/NAME-names.txt has and no source
# defines says that it is not supported.
function(add_guest_math name major)
  cmake_parse_arguments(PARSE_ARGV 2 given "" "" "SOURCES;DEFINES;LIBRARIES")
  set(names ${CMAKE_SOURCE_DIR}/vgpumgr/virtio/spec/${name}-names.txt)
  set(made ${CMAKE_CURRENT_BINARY_DIR}/${name}${major})
  add_custom_command(
    OUTPUT ${made}/unsupported.c ${made}/exports.map
    COMMAND ${CMAKE_COMMAND} -E env PYTHONPATH=${CMAKE_SOURCE_DIR} ${Python3_EXECUTABLE} -m vgpumgr.virtio.codegen.blas_names
            ${names} lib${name}.so.${major} ${made}
    DEPENDS ${CMAKE_SOURCE_DIR}/vgpumgr/virtio/codegen/blas_names.py ${names}
    VERBATIM)
  set(target guest_${name}${major})
  add_library(${target} SHARED ${given_SOURCES} ${made}/unsupported.c ${made}/exports.map)
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_compile_definitions(${target} PRIVATE ${given_DEFINES})
  target_link_libraries(${target} PRIVATE guest_math ${given_LIBRARIES} -Wl,--no-as-needed -l:libdl.so.2 -l:libpthread.so.0 -Wl,--as-needed)
  target_link_options(${target} PRIVATE
    -Wl,--version-script=${made}/exports.map -Wl,-z,defs -Wl,-soname,lib${name}.so.${major})
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME ${name} SUFFIX .so.${major} NO_SONAME ON LINK_DEPENDS ${made}/exports.map
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
  install(TARGETS ${target} LIBRARY DESTINATION ${VGPUMGR_LIB}/guest)
endfunction()

# add_simulated_math(NAME RELEASE PREFIX [VERSION N] SOURCES...): a simulated machine's libNAME.so.RELEASE, which exports
# what begins with PREFIX. How it reaches device memory, streams and OpenBLAS is the simulated cuBLAS's.
function(add_simulated_math name release prefix)
  cmake_parse_arguments(PARSE_ARGV 3 given "" "VERSION" "SOURCES")
  set(target sim${name}${release})
  set(map ${CMAKE_CURRENT_BINARY_DIR}/lib${name}.so.${release}.map)
  file(CONFIGURE OUTPUT ${map} CONTENT "lib${name}.so.${release} {\n\tglobal: ${prefix}*;\n\tlocal: *;\n};\n")
  add_library(${target} SHARED ${given_SOURCES} $<TARGET_OBJECTS:simblas-base>)
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME ${name} SOVERSION ${release} LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/${release} LINK_DEPENDS ${map})
  if(given_VERSION)
    target_compile_definitions(${target} PRIVATE VERSION=${given_VERSION})
  endif()
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/vgpumgr/sim/native/blas)
  target_include_directories(${target} SYSTEM PRIVATE ${VGPUMGR_CUDA13_INCLUDE})
  # Its thread may still run at exit: the library must never be unmapped.
  target_link_options(${target} PRIVATE -Wl,--version-script=${map} -Wl,-z,nodelete)
  find_package(Threads REQUIRED)
  target_link_libraries(${target} PRIVATE Threads::Threads ${CMAKE_DL_LIBS} m)
  install(TARGETS ${target} LIBRARY DESTINATION ${VGPUMGR_LIB}/sim NAMELINK_SKIP)
endfunction()
