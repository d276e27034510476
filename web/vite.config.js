import { defineConfig } from "vite";

// Addresses are relative, so that the same files work below /ui/ and inside Cockpit.
export default defineConfig({
  base: "./",
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "../vgpumgr/_web",
    emptyOutDir: true,
    target: "es2024",
    // the policy of the page allows no data: URLs for scripts and styles, and no inline code
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rollupOptions: { input: { index: "index.html", cockpit: "cockpit.html" } },
  },
});
