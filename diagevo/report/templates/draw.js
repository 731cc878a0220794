window.drawn = {};
window.drawReport = async function (specs) {
  for (const [name, spec] of Object.entries(specs)) {
    const target = document.getElementById("figure-" + name);
    try {
      const options = {actions: false, renderer: "svg"};
      window.drawn[name] = await vegaEmbed(target, spec, options);
    } catch (error) {
      target.textContent = "This figure could not be drawn: " + error;
      console.error(name, error);
    }
  }
  document.body.dataset.drawn = Object.keys(window.drawn).length;
  document.body.dataset.drawnAfterMs = Math.round(performance.now());
};
